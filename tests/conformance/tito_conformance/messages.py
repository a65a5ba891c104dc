"""Turns as messages of the OpenAI chat API."""

import json
from typing import Any

from agentgym_tok.types import AssistantMessage

__all__ = ["to_openai"]


def to_openai(read: AssistantMessage, turn: str, stop: str | None = None) -> dict[str, Any]:
    """Return a turn as a message of the OpenAI chat API.

    Args:
        read: The turn.
        turn: Makes ids of calls unique, where the model's dialect has none.
        stop: The stop string that ended the turn; it is cut from the content.
    """
    content = read.content
    if stop is not None and stop.strip() in content:
        content = content.rpartition(stop.strip())[0].rstrip()
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if read.reasoning:
        message["reasoning_content"] = read.reasoning
    calls = [
        {
            "id": call.id or f"call_{turn}_{place}",
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.raw if call.arguments is None else json.dumps(call.arguments, ensure_ascii=False),
            },
        }
        for place, call in enumerate(read.tool_calls)
        if call.name
    ]
    if calls:
        message["tool_calls"] = calls
    return message
