"""Is a message that came back the one that was told? Compared by what it means, not by how its JSON is written."""

import hashlib
import json
from typing import Any

from agentgym_tok.types import Message, ToolCall

__all__ = ["likeness", "same_message"]


def likeness(message: Message) -> bytes:
    """Return a digest that equal messages share, for looking them up.

    Arguments count as JSON values, and numbers as doubles: what a client in JavaScript reads and writes again is the
    same to it. Reasoning, which many clients leave out, does not count.
    """
    calls = [[call.name, call.id, _arguments(call)] for call in message.tool_calls]
    ranges = [list(one) for one in message.untrusted]
    said = [message.role, message.content, message.tool_call_id, message.name, message.trusted]
    parts: list[Any] = [*said, calls, list(message.images), ranges]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).digest()


def same_message(told: Message, back: Message) -> bool:
    """Say whether a message is the one that was told; reasoning may be missing, but not another one.

    Args:
        told: What the client was told; see `echo` of each protocol.
        back: What it sent.
    """
    return likeness(told) == likeness(back) and back.reasoning in {None, told.reasoning}


def _arguments(call: ToolCall) -> Any:
    # No text at all comes back as no arguments.
    return {"raw": call.raw} if call.arguments is None and call.raw else [_canonical(dict(call.arguments or {}))]


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _canonical(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    return value


def _number(value: float) -> float:
    """Return a number as JavaScript knows it, a double that is written as a whole number where it is one."""
    try:
        double = float(value)
    except OverflowError:
        return value
    return int(double) if double.is_integer() and abs(double) < 1e21 else double
