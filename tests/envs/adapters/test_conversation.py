"""Turns reach foreign programs whole, and programs' messages reach the policy as they are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Message, ToolCall
from agentgym_tok.envs import TextObservation
from agentgym_tok.envs.adapters.conversation import Conversation, Said, Spoken, read_said, said_of
from agentgym_tok.types import AssistantMessage

CHAT = ChatFormat.builtin()
TEXT = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.dictionaries(TEXT, inner), max_leaves=4
)
CALLS = st.builds(ToolCall, TEXT, st.dictionaries(TEXT, JSON, max_size=2), TEXT)
SAID = st.builds(Said, TEXT, st.none() | TEXT, st.lists(CALLS, max_size=2).map(tuple), st.booleans())


@given(SAID)
def test_a_turn_is_read_as_it_was_written(said: Said) -> None:
    assert read_said(said.command()) == said


@pytest.mark.parametrize(
    "command", ["", "hello", "{", "17", '{"role": "assistant"}', '{"content": "x"}', "[" * 100_000]
)
def test_what_is_no_turns_json_is_text(command: str) -> None:
    assert read_said(command) == Said(command)


def test_a_turn_is_told_with_its_calls_and_reasoning_and_how_it_ended() -> None:
    turn = AssistantMessage("Hm.", "think", (ToolCall("f", {"x": "ü"}), ToolCall("g", {}, "own")))
    said = said_of(turn)
    assert said.finish == "tool_calls"
    told = said.message()
    assert told["reasoning_content"] == "think"
    assert [call["id"] for call in told["tool_calls"]] == ["call00000", "own"]
    assert json.loads(told["tool_calls"][0]["function"]["arguments"]) == {"x": "ü"}
    assert said_of(AssistantMessage("Hm.", closed=False)).finish == "length"
    assert said_of(AssistantMessage("Hm.")).message() == {"role": "assistant", "content": "Hm."}


def test_a_call_that_cannot_be_read_is_text_and_breaks_the_form() -> None:
    broken = ToolCall("f", None, raw='{"name": "f", "arguments": {', status="invalid_json")
    command = Conversation().read(AssistantMessage("I try. ", tool_calls=(broken,)))
    assert not command.format_ok
    assert read_said(command.text).content == 'I try. {"name": "f", "arguments": {'
    assert Conversation().read(AssistantMessage("")).format_ok


@pytest.mark.parametrize(
    "turn", ["hello", Message("assistant", "x", tool_calls=(ToolCall("f", {"a": 1}, "call00000"),))]
)
def test_a_command_is_the_turn_that_says_it(turn: Any) -> None:
    form = Conversation()
    ids_T = CHAT.encode_turn(turn)
    command = form.read(CHAT.parse(ids_T)).text
    assert CHAT.encode_turn(form.answer(command)).tolist() == ids_T.tolist()


def test_tools_and_pasts_are_the_programs() -> None:
    form = Conversation()
    tools = ({"type": "function", "function": {"name": "f"}},)
    spoken = Spoken("hello", messages=(Message("user", "hello"),), tools=tools, fresh=True)
    assert form.open(spoken, {}) == [Message("user", "hello")]
    assert (form.tools, form.fresh) == (tools, True)
    assert form.follow(TextObservation("plain"), {}, []) == [Message("user", "plain")]
