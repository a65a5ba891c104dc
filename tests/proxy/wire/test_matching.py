"""Messages match by what they mean, and ids are made from their parts alone."""

import re

import pytest

from agentgym_tok.proxy.wire import call_namer, likeness, same_message, wire_id
from agentgym_tok.types import Message, ToolCall


def said(content: str = "a", reasoning: str | None = None, **arguments: object) -> Message:
    return Message("assistant", content, tool_calls=(ToolCall("look", arguments, "c"),), reasoning=reasoning)


@pytest.mark.parametrize(
    ("told", "back"),
    [
        (said(x=1.0), said(x=1)),
        (said(x=-0.0), said(x=0)),
        (said(x=2**60 + 1), said(x=2**60)),
        (said(x=1e20), said(x=10**20)),
        (said(x={"b": 1, "a": [1.0]}), said(x={"a": [1], "b": 1})),
        (said(reasoning="Hm."), said()),
        (said(reasoning="Hm."), said(reasoning="Hm.")),
    ],
)
def test_what_clients_write_otherwise_is_the_same(told: Message, back: Message) -> None:
    assert same_message(told, back)
    assert likeness(told) == likeness(back)


@pytest.mark.parametrize(
    ("told", "back"),
    [
        (said("a"), said("a ")),
        (said(x=1), said(x=True)),
        (said(x=0.1), said(x=0.10000000000000002)),
        (said(x="1"), said(x=1)),
        (said(x=None), said()),
        (said(x=10**400), said(x=10**400 + 1)),
        (said(x=[1, 2]), said(x=[2, 1])),
        (said(reasoning="Hm."), said(reasoning="Ha.")),
        (said(), said(reasoning="Ha.")),
        (Message("tool", "a", tool_call_id="c"), Message("tool", "a", tool_call_id="d")),
        (Message("system", "a", trusted=True), Message("system", "a")),
        (Message("user", "a"), Message("user", "a", images=("ff",))),
    ],
)
def test_what_means_something_else_is_another_message(told: Message, back: Message) -> None:
    assert not same_message(told, back)


def test_ids_follow_from_their_parts_alone() -> None:
    namer = call_namer("call_", "session", 3)
    assert namer(0, 0) == call_namer("call_", "session", 3)(0, 0)
    assert len({namer(0, 0), namer(1, 0), namer(0, 1), call_namer("call_", "session", 4)(0, 0)}) == 4
    assert re.fullmatch("call_[0-9a-f]{24}", namer(0, 0))
    assert wire_id("x", "a", "bc") != wire_id("x", "ab", "c")
