"""What somebody changed in a message is told from how it is written."""

import pytest

from agentgym_tok import Message, ToolCall
from agentgym_tok.drift import Conversation
from agentgym_tok.drift.change import change


def call(arguments: dict[str, object] | None, name: str = "get", id_: str = "a", raw: str = "") -> Message:
    return Message("assistant", "", tool_calls=(ToolCall(name, arguments, id_, raw),))


SAID = Message("assistant", "I go.", reasoning="It is late.")
SAME = [
    (Message("user", "Go on."), Message("user", " Go  on.\n")),
    (SAID, Message("assistant", " I go. ", reasoning="It is late.\n")),
    (SAID, Message("assistant", "<think>\nIt is late.\n</think>\n\nI go.")),
    (call({"a": True, "b": [1, None]}), call({"a": "True", "b": ["1", "None"]})),
    (call({"a": "", "b": 1}), call({"b": 1})),
    (call(None, raw='{"a": false}'), call(None, raw="{'a':False}")),
    (call({"a": 1}, raw='{"name": "get"}'), Message("assistant", '<tool_call>{"name": "get"}</tool_call>x')),
    (call({}, id_="a"), call({}, id_="")),
]
CHANGED = [
    (Message("user", "Go on."), None, "history_edit"),
    (Message("user", "Go on."), Message("tool", "Go on."), "history_edit"),
    (Message("user", "Go on."), Message("user", "Go."), "history_edit"),
    (Message("system", "Be brief."), Message("system", "Be kind."), "system_swap"),
    (Message("tool", "Rain.", tool_call_id="a"), Message("tool", "Rain.", tool_call_id="b"), "call_id"),
    (SAID, Message("assistant", "I go."), "reasoning_strip"),
    (SAID, Message("assistant", "I go.", reasoning="It is early."), "history_edit"),
    (SAID, Message("assistant", "I stay.", reasoning="It is late."), "history_edit"),
    (call({"a": 1}), call({"a": 2}), "history_edit"),
    (call({"a": 1}), call({"a": 1}, name="put"), "history_edit"),
    (call({"a": 1}), Message("assistant", ""), "history_edit"),
    (call({"a": "Two words"}), call({"a": "two words"}), "history_edit"),
    (call({}, id_="a"), call({}, id_="b"), "call_id"),
]


@pytest.mark.parametrize(("said", "kept"), SAME)
def test_ways_of_writing_change_nothing(said: Message, kept: Message) -> None:
    assert change(said, kept) is None


@pytest.mark.parametrize(("said", "kept", "kind"), CHANGED)
def test_changes_of_meaning_have_a_name(said: Message, kept: Message | None, kind: str) -> None:
    assert change(said, kept) == kind


def test_tools_are_the_same_only_in_the_same_order() -> None:
    one, other = {"name": "a", "q": 1}, {"q": 1, "name": "a"}
    assert Conversation((), (one,)).same_tools(Conversation((), (dict(one),)))
    assert not Conversation((), (one,)).same_tools(Conversation((), (other,)))
    assert not Conversation((), (one, other)).same_tools(Conversation((), (other, one)))
