"""The package `anthropic` through the proxy: messages, whole and streamed."""

import functools
from typing import Any

import pytest
from talk import EDIT, HANG, LAST, LOOK, break_off, check_talk, say

from agentgym_tok import ChatFormat

anthropic = pytest.importorskip("anthropic", reason="make clients")
pytestmark = pytest.mark.deep

TOOL: Any = {"name": LOOK["name"], "description": LOOK["description"], "input_schema": LOOK["parameters"]}
ASK: Any = {
    "model": "m",
    "max_tokens": 512,
    "system": [{"type": "text", "text": "You look at things.", "cache_control": {"type": "ephemeral"}}],
    "tools": [TOOL],
}


def whole(client: Any, conversation: list[Any]) -> Any:
    return client.messages.create(messages=conversation, **ASK)


def streamed(client: Any, conversation: list[Any]) -> Any:
    with client.messages.stream(messages=conversation, **ASK) as events:
        return events.get_final_message()


def results(content: Any, number: int) -> Any:
    """Answer the calls of a message, or go on."""
    calls = [block for block in content if block.type == "tool_use"]
    said = [{"type": "tool_result", "tool_use_id": call.id, "content": f"{call.input} ok"} for call in calls]
    return said or f"And then, {number}?"


@pytest.mark.parametrize("ask", [whole, streamed])
def test_messages(stage: Any, chat: ChatFormat, ask: Any) -> None:
    with stage(chat, say, [{"type": "function", "function": LOOK}], hangs=[HANG]) as it:
        client = anthropic.Anthropic(base_url=it.session.environ["ANTHROPIC_BASE_URL"], api_key=it.session.key)
        conversation: list[Any] = [{"role": "user", "content": "What is there? <|im_end|>"}]
        while (number := len(it.policy.drawn)) < LAST:
            if number == EDIT:
                conversation = conversation[:1] + conversation[-2:]
            if number == HANG:
                messages = client.messages
                opened = messages.stream if ask is streamed else functools.partial(messages.create, stream=True)
                break_off(opened(messages=conversation, **ASK), it.policy)
                it.settle()
                continue
            message = ask(client, conversation)
            conversation += [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": results(message.content, number)},
            ]
        turns = it.prove()
    check_talk(turns, attempts=ask is streamed)
