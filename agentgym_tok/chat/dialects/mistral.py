"""Mistral: calls behind `[TOOL_CALLS]`, as a JSON array or one by one.

    [TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "abcdefghi"}, ...]       version 3 of its tokenizers
    [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}            version 11 and later
    [TOOL_CALLS]f{...}                                                            the same without its tokens

No delimiter ends a call; its JSON does. Reasoning stands between `[THINK]` and `[/THINK]`.
"""

import re

from agentgym_tok.chat.dialects.dialect import (
    THINK,
    Body,
    arguments_of,
    call_of,
    function_of,
    json_end,
    message_of,
    split_reasoning,
)
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import TurnText, any_of
from agentgym_tok.types import AssistantMessage, ToolCall

__all__ = ["MISTRAL"]

_OPENER = b"[TOOL_CALLS]"
_BEFORE = re.compile(rb"[\s,]*+")
_BEHIND = re.compile(rb"\s*+\]?")


class _Mistral:
    """Read turns of Mistral's models."""

    name = "mistral"
    signs = (("[TOOL_CALLS]",),)
    delimiters = ("[THINK]", "[/THINK]", *THINK, "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
    reasoning = (("[THINK]", "[/THINK]"), THINK)
    _pattern = any_of("[THINK]", "[/THINK]", *THINK, "[TOOL_CALLS]")

    def read(self, turn: TurnText, tools: Tools) -> AssistantMessage:
        """Read a turn."""
        marks = turn.marks(self._pattern)
        reasoning = split_reasoning(turn, marks, self.reasoning)
        openers = [mark for mark in marks if mark.text == _OPENER and mark.start >= reasoning.end]
        calls: list[ToolCall] = []
        content: list[bytes] = []
        place = reasoning.end
        ends = [*(mark.start for mark in openers[1:]), turn.end]
        for opener, end in zip(openers, ends, strict=False):
            content.append(turn.raw[place : opener.start])
            begin = _skip(_BEFORE, turn, opener.end, end)
            read = _array if turn.raw.startswith(b"[", begin, end) else _named
            found, place = read(turn, opener.start, begin, end, tools)
            calls += found
        content.append(turn.raw[place : turn.end])
        return message_of(turn, reasoning, content, calls)


def _array(turn: TurnText, start: int, begin: int, end: int, tools: Tools) -> tuple[list[ToolCall], int]:
    """Read the array at `begin`; the opener and the brackets belong to the calls beside them."""
    calls: list[ToolCall] = []
    place = begin + 1
    while True:
        element = _skip(_BEFORE, turn, place, end)
        if turn.raw.startswith(b"]", element, end) or (element == end and calls):
            return calls, min(element + 1, end)
        an_object = turn.raw.startswith(b"{", element, end)
        stop = json_end(turn.raw, element, end) if an_object else None
        inner = element, stop or end
        body = function_of(turn.text(*inner)) if an_object else Body("", None, "malformed")
        place = end if stop is None else _skip(_BEHIND, turn, stop, end)
        calls.append(call_of(turn, (start, place), inner, body, tools, closed=stop is not None or not _cut(turn, end)))
        if stop is None or turn.raw[stop:place].endswith(b"]"):
            return calls, place
        start = place


def _named(turn: TurnText, start: int, begin: int, end: int, tools: Tools) -> tuple[list[ToolCall], int]:
    """Read the call at `begin`, whose name stands before its arguments."""
    brace = turn.raw.find(b"{", begin, end)
    head = turn.text(begin, end if brace < 0 else brace).strip().removesuffix("[ARGS]")
    name, _, id_ = (part.strip() for part in head.partition("[CALL_ID]"))
    stop = None if brace < 0 else json_end(turn.raw, brace, end)
    if brace < 0 or "[" in name:
        body = Body(name, None, "malformed" if name else "missing_name", id_)
    else:
        body = arguments_of(name, turn.text(brace, stop or end), id_)
    place = stop or end
    closed = stop is not None or not _cut(turn, end)
    return [call_of(turn, (start, place), (begin, place), body, tools, closed=closed)], place


def _cut(turn: TurnText, end: int) -> bool:
    """Tell whether the turn was cut at this place, so that what stands before it may be unfinished."""
    return end == turn.end and not turn.closed


def _skip(pattern: re.Pattern[bytes], turn: TurnText, start: int, end: int) -> int:
    match = pattern.match(turn.raw, start, end)
    return start if match is None else match.end()


MISTRAL = _Mistral()
