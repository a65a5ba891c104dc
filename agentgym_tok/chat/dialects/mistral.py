"""Mistral: calls behind `[TOOL_CALLS]`, as a JSON array or one by one.

    [TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "abcdefghi"}, ...]       version 3 of its tokenizers
    [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}            version 11 and later
    [TOOL_CALLS]f{...}                                                            the same without its tokens

No delimiter ends a call; its JSON does. Reasoning stands between `[THINK]` and `[/THINK]`.
"""

import re

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.dialect import (
    THINK,
    Body,
    Early,
    arguments_of,
    call_of,
    function_of,
    json_end,
    message_of,
    split_reasoning,
    tell_end,
)
from agentgym_tok.chat.dialects.early import StepwiseReader, raw_of
from agentgym_tok.chat.dialects.early_calls import JsonArguments, JsonFunction
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import ArrivingTurn, Event, TurnText, any_of
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.types import AssistantMessage, ToolCall

__all__ = ["MISTRAL"]

_BLANKS = b" \t\n\r\f\v,"
_OPENER = b"[TOOL_CALLS]"
_BEFORE = re.compile(rb"[\s,]*+")
_BEHIND = re.compile(rb"\s*+\]?")


class _Mistral:
    """Read turns of Mistral's models."""

    name = "mistral"
    signs = (("[TOOL_CALLS]",),)
    delimiters = ("[THINK]", "[/THINK]", *THINK, "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
    reasoning = (("[THINK]", "[/THINK]"), THINK)
    _marks = ("[THINK]", "[/THINK]", *THINK, "[TOOL_CALLS]")
    _pattern = any_of(*_marks)

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

    def early(self, tokenizer: Tokenizer, tools: Tools, said: Said, opened: bool | None) -> Early:
        """Return what reads a turn while it arrives."""
        return _EarlyMistral(ArrivingTurn(tokenizer, self._marks, opened=opened), tools, said)


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
    name, id_ = _split_head(turn.text(begin, end if brace < 0 else brace))
    stop = None if brace < 0 else json_end(turn.raw, brace, end)
    body = _named_body(name, None if brace < 0 else turn.text(brace, stop or end), id_)
    place = stop or end
    closed = stop is not None or not _cut(turn, end)
    return [call_of(turn, (start, place), (begin, place), body, tools, closed=closed)], place


def _split_head(text: str) -> tuple[str, str]:
    """Return the name and the id that stand before a call's arguments."""
    name, _, id_ = (part.strip() for part in text.strip().removesuffix("[ARGS]").partition("[CALL_ID]"))
    return name, id_


def _named_body(name: str, arguments: str | None, id_: str) -> Body:
    if arguments is None or "[" in name:
        return Body(name, None, "malformed" if name else "missing_name", id_)
    return arguments_of(name, arguments, id_)


def _cut(turn: TurnText, end: int) -> bool:
    """Tell whether the turn was cut at this place, so that what stands before it may be unfinished."""
    return end == turn.end and not turn.closed


def _skip(pattern: re.Pattern[bytes], turn: TurnText, start: int, end: int) -> int:
    match = pattern.match(turn.raw, start, end)
    return start if match is None else match.end()


class _EarlyMistral(StepwiseReader):
    """Read turns of Mistral's models."""

    def __init__(self, turn: ArrivingTurn, tools: Tools, said: Said) -> None:
        super().__init__(turn, tools, said, MISTRAL.reasoning)
        self._step = self._content

    def _rest(self, event: Event) -> None:
        raw = raw_of(event)
        if isinstance(event, bytes) or raw != _OPENER:
            self._bytes(raw)
        elif self._step == self._content:
            self._step = self._open
            self._head: list[bytes] = []
        else:
            self._step = self._wait  # the call before is broken
            self._take = self._ignore

    def _ignore(self, event: Event) -> None:
        """Leave the rest of the turn to its end."""

    def _content(self, raw: bytes) -> bytes:
        self._said.text(raw)
        return b""

    def _open(self, raw: bytes) -> bytes:
        raw = raw.lstrip(_BLANKS)
        if raw:
            self._step = self._element if raw.startswith(b"[") else self._name
            raw = raw.removeprefix(b"[")
        return raw

    def _name(self, raw: bytes) -> bytes:
        before, brace, behind = raw.partition(b"{")
        self._head.append(before)
        if not brace:
            return b""
        self._named = _split_head(b"".join(self._head).decode("utf-8", "replace"))
        self._said.begin(*self._named)
        self._open_object(JsonArguments(self._said, self._tools))
        self._step = self._arguments
        return brace + behind

    def _arguments(self, raw: bytes) -> bytes:
        stop = self._read_object(raw)
        if stop is None:
            return b""
        name, id_ = self._named
        tell_end(self._said, _named_body(name, self._text_of_object(), id_), self._tools)
        self._step = self._content
        return raw[stop:]

    def _element(self, raw: bytes) -> bytes:
        raw = raw.lstrip(_BLANKS)
        if raw.startswith(b"]"):
            self._step = self._content
            return raw[1:]
        if raw:
            self._open_object(JsonFunction(self._said, self._tools))
            self._step = self._function if raw.startswith(b"{") else self._wait
        return raw

    def _function(self, raw: bytes) -> bytes:
        stop = self._read_object(raw)
        if stop is None:
            return b""
        tell_end(self._said, function_of(self._text_of_object()), self._tools)
        self._step = self._element
        return raw[stop:]


MISTRAL = _Mistral()
