"""Contexts of a proxy: sampled ids stay where the client goes on, and anything else is rendered as it says."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Completion, Message
from agentgym_tok.proxy.contexts import Contexts, Prepared
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


def ask(contexts: Contexts, conversation: list[Message], ids: Sequence[int], tools: Any = ()) -> tuple[Prepared, Turn]:
    prepared = contexts.prepare(conversation, tools)
    turn = turn_of(prepared.context, ids)
    contexts.add(conversation, turn)
    return prepared, turn


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
            assert prepared.source is last
            assert np.array_equal(prepared.context.ids[: len(answered(last))], answered(last).ids)
        last = turn
        conversation += [told(turn), Message("user", f"and {draw.integers(9)}?")]


def test_calls_are_the_same_calls_with_other_ids_and_other_spelling() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "look around")]
    call = ToolCall("look", {"at": "the sky", "n": 2})
    _, turn = ask(contexts, start, CHAT.write(Message("assistant", "", tool_calls=(call,))).tolist(), TOOLS)
    quoted = Message("assistant", "", tool_calls=(ToolCall("look", {"n": 2, "at": "the sky"}, "call_7"),))
    answer = Message("tool", "blue", tool_call_id="call_7", name="look")
    assert contexts.prepare([*start, quoted, answer], TOOLS).source is turn
    other = replace(quoted, tool_calls=(ToolCall("look", {"n": 3, "at": "the sky"}, "call_7"),))
    assert contexts.prepare([*start, other, answer], TOOLS).source is None


def test_whatever_was_changed_is_rendered_as_the_client_says_it() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    _, turn = ask(contexts, start, CHAT.encode_turn("<think>hm</think>well then").tolist())
    said, news = told(turn), Message("user", "and?")
    assert contexts.prepare([*start, said, news]).source is turn
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
        assert prepared.messages == tuple(conversation)
    assert contexts.prepare([*start, said, news], TOOLS).source is None


def test_two_answers_that_say_the_same_in_other_ids_are_ambiguous_unless_one_was_used() -> None:
    contexts, start = Contexts(CHAT), [SYSTEM, Message("user", "hello")]
    context = contexts.prepare(start).context
    one, other = CHAT.encode_turn("hello").tolist(), [*CHAT.encode("h"), *CHAT.encode("ello"), CHAT.stop_ids[0]]
    assert one != other
    contexts.add(start, turn_of(context, one))
    contexts.add(start, turn_of(context, other))
    conversation = [*start, Message("assistant", "hello"), Message("user", "and?")]
    prepared = contexts.prepare(conversation)
    assert (prepared.source, prepared.reason) == (None, "ambiguous")
    again = Contexts(CHAT)
    again.add(start, turn_of(context, one, used=False))
    again.add(start, turn_of(context, other))
    source = again.prepare(conversation).source
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
    assert contexts.prepare([*longer, told(second), Message("user", "next")]).source is second
    assert contexts.prepare([*conversation, told(first), Message("user", "another way")]).source is first
