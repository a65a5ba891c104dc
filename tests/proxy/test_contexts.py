"""Contexts of a proxy: sampled ids stay where the client goes on, and anything else is rendered as it says."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxying import same_answer

from agentgym_tok import ChatFormat, Completion, Message
from agentgym_tok.errors import ChatError
from agentgym_tok.proxy.contexts import Contexts, Given, Prepared
from agentgym_tok.tokens import Context, as_ids
from agentgym_tok.trace import Edge, Turn, sent_digest
from agentgym_tok.trace.laws import answered
from agentgym_tok.types import ToolCall

CHAT = ChatFormat.builtin()
SYSTEM = Message("system", "Be brief.", trusted=True)
TOOLS = ({"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}},)


def turn_of(context: Context, ids: Sequence[int], *, used: bool = True) -> Turn:
    sent, edge = sent_digest(context.root, context.ids), Edge("fresh_prompt", None, 0)
    return Turn("session", 0, context, sent, Completion(as_ids(ids)), edge, used=used)


def told(turn: Turn, tools: Any = None) -> Message:
    """Return an answer as a client gets it: without reasoning."""
    return replace(CHAT.parse(turn.completion.ids_T, tools).message(), reasoning=None)


def add(contexts: Contexts, conversation: list[Message], turn: Turn, tools: Any = ()) -> None:
    contexts.add(contexts.prepare(conversation, tools), Given(turn, told(turn, tools or None)))


def ask(contexts: Contexts, conversation: list[Message], ids: Sequence[int], tools: Any = ()) -> tuple[Prepared, Turn]:
    prepared = contexts.prepare(conversation, tools)
    turn = turn_of(prepared.context, ids)
    add(contexts, conversation, turn, tools)
    return prepared, turn


def source_of(prepared: Prepared) -> Turn | None:
    return prepared.source and prepared.source.turn


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31), turns=st.integers(1, 5))
def test_a_client_that_sends_back_what_it_got_keeps_every_sampled_id(seed: int, turns: int) -> None:
    draw = np.random.default_rng(seed)
    contexts, conversation = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    last: Turn | None = None
    for _ in range(turns):
        ids = [*draw.integers(CHAT.vocab_size, size=int(draw.integers(0, 9))).tolist(), CHAT.stop_ids[0]]
        prepared, turn = ask(contexts, conversation, ids)
        if last is not None:
            assert source_of(prepared) is last
            assert np.array_equal(prepared.context.ids[: len(answered(last))], answered(last).ids)
        last = turn
        conversation += [told(turn), Message("user", f"and {draw.integers(9)}?")]


def test_calls_are_the_same_calls_with_other_ids_and_other_spelling() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "look around")]
    call = ToolCall("look", {"at": "the sky", "n": 2})
    _, turn = ask(contexts, start, CHAT.write(Message("assistant", "", tool_calls=(call,))).tolist(), TOOLS)
    quoted = Message("assistant", "", tool_calls=(ToolCall("look", {"n": 2, "at": "the sky"}, "call_7"),))
    answer = Message("tool", "blue", tool_call_id="call_7", name="look")
    assert source_of(contexts.prepare([*start, quoted, answer], TOOLS)) is turn
    other = replace(quoted, tool_calls=(ToolCall("look", {"n": 3, "at": "the sky"}, "call_7"),))
    assert contexts.prepare([*start, other, answer], TOOLS).source is None


def test_whatever_was_changed_is_rendered_as_the_client_says_it() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    _, turn = ask(contexts, start, CHAT.encode_turn("<think>hm</think>well then").tolist())
    said, news = told(turn), Message("user", "and?")
    assert source_of(contexts.prepare([*start, said, news])) is turn
    edited = [
        [Message("system", "Be long.", trusted=True), start[1], said, news],
        [SYSTEM, Message("user", "hallo"), said, news],
        [*start, replace(said, content="well, then"), news],
        [*start, Message("user", "more"), said, news],
        [said, news],
    ]
    for conversation in edited:
        prepared = contexts.prepare(conversation)
        assert prepared.source is None
        assert np.array_equal(prepared.context.ids, CHAT.open(conversation).ids)
        assert prepared.rendered == prepared.conversation == tuple(conversation)
    assert contexts.prepare([*start, said, news], TOOLS).source is None


def test_two_answers_that_say_the_same_in_other_ids_are_ambiguous_unless_one_was_used() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    context = contexts.prepare(start).context
    one, other = CHAT.encode_turn("hello").tolist(), [*CHAT.encode("h"), *CHAT.encode("ello"), CHAT.stop_ids[0]]
    assert one != other
    add(contexts, start, turn_of(context, one))
    add(contexts, start, turn_of(context, other))
    conversation = [*start, Message("assistant", "hello"), Message("user", "and?")]
    prepared = contexts.prepare(conversation)
    assert (prepared.source, prepared.reason) == (None, "ambiguous")
    again = Contexts(CHAT)
    add(again, start, turn_of(context, one, used=False))
    add(again, start, turn_of(context, other))
    source = source_of(again.prepare(conversation))
    assert source is not None
    assert source.completion.ids_T.tolist() == other


def test_a_refusal_of_the_bridge_is_named() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    _, turn = ask(contexts, start, CHAT.encode_turn("well").tolist())
    foreign = [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    prepared = contexts.prepare([*start, told(turn), *foreign])
    assert (prepared.source, prepared.reason) == (None, "assistant_message")


def test_the_longest_known_beginning_wins() -> None:
    contexts, conversation = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    _, first = ask(contexts, conversation, CHAT.encode_turn("one").tolist())
    longer = [*conversation, told(first), Message("user", "next")]
    _, second = ask(contexts, longer, CHAT.encode_turn("two").tolist())
    assert source_of(contexts.prepare([*longer, told(second), Message("user", "next")])) is second
    assert source_of(contexts.prepare([*conversation, told(first), Message("user", "another way")])) is first


def said(content: str = "a", reasoning: str | None = None, **arguments: object) -> Message:
    return Message("assistant", content, tool_calls=(ToolCall("look", arguments, "c"),), reasoning=reasoning)


@pytest.mark.parametrize(
    ("answer", "back"),
    [
        (said(x=1.0), said(x=1)),
        (said(x=-0.0), said(x=0)),
        (said(x=2**60 + 1), said(x=2**60)),
        (said(x=1e20), said(x=10**20)),
        (said(x={"b": 1, "a": [1.0]}), said(x={"a": [1], "b": 1})),
        (said("a"), said(" a\n")),
        (said(reasoning="Hm."), said()),
        (said(reasoning="Hm."), said(reasoning="Hm.")),
    ],
)
def test_what_clients_write_otherwise_is_the_same(answer: Message, back: Message) -> None:
    assert same_answer(answer, back)


@pytest.mark.parametrize(
    ("answer", "back"),
    [
        (said("a"), said("b")),
        (said(x=1), said(x=True)),
        (said(x=0.1), said(x=0.10000000000000002)),
        (said(x="1"), said(x=1)),
        (said(x=None), said()),
        (said(x=10**400), said(x=10**400 + 1)),
        (said(x=[1, 2]), said(x=[2, 1])),
        (said(reasoning="Hm."), said(reasoning="Ha.")),
        (said(), said(reasoning="Ha.")),
    ],
)
def test_what_means_something_else_is_another_answer(answer: Message, back: Message) -> None:
    assert not same_answer(answer, back)


def test_a_client_that_thinks_otherwise_than_the_policy_did_is_rendered() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    turn = turn_of(contexts.prepare(start).context, CHAT.encode_turn("<think>hm</think>well then").tolist())
    answer = CHAT.parse(turn.completion.ids_T).message()
    contexts.add(contexts.prepare(start), Given(turn, answer))
    news = Message("user", "and?")
    assert source_of(contexts.prepare([*start, answer, news])) is turn
    assert source_of(contexts.prepare([*start, replace(answer, reasoning=None), news])) is turn
    assert contexts.prepare([*start, replace(answer, reasoning="ha"), news]).source is None


def test_results_are_named_by_the_calls_that_the_policy_made() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "look around")]
    call = ToolCall("look", {"at": "the sky"}, "own_1")
    asked = contexts.prepare(start, TOOLS)
    turn = turn_of(asked.context, CHAT.write(Message("assistant", "", tool_calls=(call,))).tolist())
    contexts.add(asked, Given(turn, Message("assistant", "", tool_calls=(call,))))
    back = Message("assistant", "", tool_calls=(replace(call, id="theirs"),))
    prepared = contexts.prepare([*start, back, Message("tool", "blue", tool_call_id="theirs")], TOOLS)
    assert prepared.news == (Message("tool", "blue", tool_call_id="own_1"),)


def test_a_turn_that_the_client_began_goes_on_behind_its_text() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    prepared = contexts.prepare([*start, Message("assistant", "Well, <|im_end|>")])
    assert prepared.prefill == "Well, <|im_end|>"
    assert prepared.context.span.origin == "forced"
    assert prepared.context.parent is not None
    assert np.array_equal(prepared.context.parent.ids, CHAT.open(start).ids)
    assert not set(CHAT.stop_ids) & set(prepared.context.span.ids_T.tolist())
    for wrong in ([*start, said(x=1)], [Message("assistant", "a")]):
        with pytest.raises(ChatError, match="nothing to answer"):
            contexts.prepare(wrong)
