"""Reasoning that is taken out: what stands behind it keeps its ids, and what cannot be proved stays whole."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from play import Script
from scene import conversation, play, sampled, turns_in
from test_window import compacted

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.harness import Conversation, StripReasoning


def stripped(chat: ChatFormat, *turns: Sequence[int], keep: int = 0) -> Conversation | None:
    rewrite = compacted(StripReasoning(keep=keep), conversation(chat, *turns))
    if rewrite is None:
        return None
    assert (rewrite.kind, rewrite.reason) == ("strip_reasoning", "reasoning")
    return rewrite.conversation


def only(chat: ChatFormat, turn: Sequence[int]) -> list[int] | None:
    """Return what is left of one turn; None where it stays whole."""
    found = stripped(chat, turn)
    return None if found is None else found.exchanges[0].answered.span.ids_T.tolist()


def thinks(chat: ChatFormat, request: Request) -> Completion:
    text = f"<think>I was in {request.seed % 97}</think>\n\n<action>go to room {request.seed % 997}</action>"
    return sampled(chat.encode_turn(text).tolist(), request)


def test_what_stands_behind_the_reasoning_keeps_its_ids_and_logprobs(chat: ChatFormat, tmp_path: Path) -> None:
    speaker = Script(lambda request: thinks(chat, request))
    episode = play(tmp_path, chat, speaker, StripReasoning(at_turns=3, keep=1), max_steps=5)
    (after,) = [turn for turn in episode.turns if turn.edge.kind == "strip_reasoning"]
    assert (after.edge.source, after.edge.reason) == (2, "reasoning")
    assert after.context.spans[0] == episode.turns[0].context.span
    spans = turns_in(after.context)
    for turn, span in zip(episode.turns[:2], spans, strict=False):
        said = turn.completion
        assert said.logprobs_T is not None
        assert span.logprobs_T is not None
        assert len(span) < len(said.ids_T)
        assert said.ids_T[-len(span) :].tolist() == span.ids_T.tolist()
        assert np.array_equal(said.logprobs_T[-len(span) :], span.logprobs_T)
        assert chat.parse(span.ids_T).content == chat.parse(said.ids_T).content
        assert chat.parse(span.ids_T).reasoning is None
    assert spans[2].ids_T.tolist() == episode.turns[2].completion.ids_T.tolist()
    assert chat.decode(after.context.ids).count("I was in") == 1


def test_turns_without_reasoning_are_the_same_objects(chat: ChatFormat) -> None:
    plain, thought = chat.encode_turn("go north").tolist(), chat.encode_turn("<think>a plan</think>go on").tolist()
    before = conversation(chat, plain, thought, plain)
    rewrite = compacted(StripReasoning(), before)
    assert rewrite is not None
    after = rewrite.conversation.exchanges
    assert after[0] is before.exchanges[0]
    assert after[1].answered.parent is before.exchanges[0].context
    assert after[1].said.reasoning is None
    assert after[2].answered.span is before.exchanges[2].answered.span
    assert stripped(chat, plain, plain) is None


@pytest.mark.parametrize("keep", [1, 2, 3, 5])
def test_the_last_turns_keep_their_reasoning(builtin: ChatFormat, keep: int) -> None:
    turns = [builtin.encode_turn(f"<think>plan {number}</think>go on").tolist() for number in range(3)]
    after = stripped(builtin, *turns, keep=keep)
    if keep >= 3:
        assert after is None
    else:
        assert after is not None
        whole = [exchange.answered.span.ids_T.tolist() == turn for exchange, turn in zip(after.exchanges, turns)]  # noqa: B905
        assert whole == [False] * (3 - keep) + [True] * keep


def with_the_content(chat: ChatFormat) -> list[int]:
    """Return a turn in which one token ends the reasoning and begins what is said."""
    pieces = chat.token_bytes(np.arange(chat.vocab_size - 64))  # type: ignore[arg-type]
    both = next(index for index, piece in enumerate(pieces) if piece[:1] == b">" and piece[1:].strip())
    assert both not in chat.control_ids
    turn = [*chat.encode("<think>a plan</think").tolist(), both, *chat.encode("north").tolist(), chat.stop_ids[0]]
    assert chat.parse(np.asarray(turn, dtype=np.int32)).reasoning == "a plan"
    return turn


WHOLE: dict[str, Callable[[ChatFormat], Any]] = {
    "absent": lambda chat: chat.encode_turn("go north"),
    "never closed": lambda chat: chat.encode_turn("<think>north or south"),
    "empty": lambda chat: chat.encode_turn("<think></think>go north"),
    "told twice": lambda chat: chat.encode_turn("<think>north</think>go</think>south"),
    "closed without an opener": lambda chat: chat.encode_turn("north</think>go north")[-4:],
    "one token with the content": with_the_content,
    "a token of both that is cut": lambda chat: with_the_content(chat)[:-3],
    "nothing": lambda chat: chat.stop_ids[:1],
}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_turn_stays_whole_where_nothing_can_be_proved(chat: ChatFormat, kind: str) -> None:
    assert only(chat, list(WHOLE[kind](chat))) is None


def test_ids_that_no_tokenizer_makes_of_the_text_are_stripped_where_their_bytes_say_so(chat: ChatFormat) -> None:
    parts = ("<th", "ink>a p", "lan</", "thi", "nk", ">", "\n", "\n", "go", " n", "or", "th")
    turn = [*(index for part in parts for index in chat.encode(part).tolist()), chat.stop_ids[0]]
    left = [*(index for part in parts[8:] for index in chat.encode(part).tolist()), chat.stop_ids[0]]
    assert turn != chat.encode_turn("<think>a plan</think>\n\ngo north").tolist()
    assert only(chat, turn) == left


def test_a_turn_that_only_thinks_leaves_its_stop_token(chat: ChatFormat) -> None:
    assert only(chat, chat.encode_turn("<think>a plan</think>").tolist()) == [chat.stop_ids[0]]
    assert only(chat, chat.encode_turn("<think>a plan</think>").tolist()[:-1]) is None


def test_a_prompt_that_opens_the_reasoning_keeps_it(tiny: Callable[[str], ChatFormat]) -> None:
    """Without its end the turn would be read as reasoning that goes on."""
    chat = tiny(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}"
    )
    turn = chat.encode_turn("a plan</think>go north").tolist()
    said = chat.parse(np.asarray(turn, dtype=np.int32))
    assert (said.reasoning, said.content) == ("a plan", "go north")
    assert only(chat, turn) is None


def test_thoughts_in_what_is_said_belong_to_it(builtin: ChatFormat) -> None:
    said = "go<think>south</think>"
    turn = builtin.encode_turn(f"<think>north</think>{said}")
    assert builtin.parse(turn).content == said
    assert only(builtin, turn.tolist()) == builtin.encode_turn(said).tolist()


def test_calls_behind_the_reasoning_stay(builtin: ChatFormat) -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "desk"}}\n</tool_call>'
    left = only(builtin, builtin.encode_turn(f"<think>a plan</think>\n{call}").tolist())
    assert left == builtin.encode_turn(call).tolist()


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_is_left_is_an_end_of_the_turn_that_says_the_same(builtin: ChatFormat, data: st.DataObject) -> None:
    marks = [index for index in builtin.control_ids if "think" in builtin.token_text(index)]
    other = st.integers(0, builtin.vocab_size - 1)
    ids = data.draw(st.lists(st.one_of(st.sampled_from(marks), other), min_size=1, max_size=14))
    before = conversation(builtin, ids)
    said = builtin.parse(before.exchanges[0].answered.span.ids_T)
    rewrite = asyncio.run(StripReasoning().compact(before, None))  # type: ignore[arg-type]
    if rewrite is None:
        return
    assert said.reasoning
    left = rewrite.conversation.exchanges[0].answered.span
    assert left.ids_T.tolist() == ids[-len(left) :]
    rest = builtin.parse(left.ids_T)
    assert rest.content.strip() == said.content.strip()
    assert not rest.reasoning
