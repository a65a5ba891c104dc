"""Harmony, the format of gpt-oss: a turn is several messages, each with a channel and perhaps a recipient.

    <|channel|>analysis<|message|>...<|end|>
    <|start|>assistant<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>...<|return|>

The recipient may also stand before the channel. Analysis is reasoning; what goes to a recipient is a call; commentary
without one is for the user, as `final` is. A tool's name is the recipient without `functions.`.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.dialect import Early, arguments_of, call_of, tell_end
from agentgym_tok.chat.dialects.early import EarlyReader, raw_of
from agentgym_tok.chat.dialects.early_calls import JsonArguments
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import ArrivingTurn, Event, Mark, TurnText, any_of
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.types import AssistantMessage, ToolCall

__all__ = ["HARMONY"]

_START, _MESSAGE = "<|start|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class _Harmony:
    """Read turns of gpt-oss."""

    name = "harmony"
    signs = (("<|channel|>", "<|message|>"),)
    delimiters = (_START, "<|channel|>", "<|constrain|>", _MESSAGE, "<|end|>", "<|call|>")
    reasoning = ()  # its opener depends on a header

    def read(self, turn: TurnText, tools: Tools) -> AssistantMessage:
        """Read a turn."""
        content: list[str] = []
        reasoning: list[str] = []
        reasoning_closed = True  # the last message decides
        calls: list[ToolCall] = []
        for part in _parts(turn):
            head, text = turn.text(part.start, part.header_end), turn.text(part.body_start, part.body_end).strip()
            header = _read_header(head)
            reasoning_closed = True
            if header.channel is None and not part.headed:
                content.append(head.strip())
            elif header.tool is not None:
                body = arguments_of(header.tool, text)
                outer, inner = (part.start, part.end), (part.body_start, part.body_end)
                calls.append(call_of(turn, outer, inner, body, tools, closed=part.closed))
            elif header.channel == "analysis":
                reasoning.append(text)
                reasoning_closed = part.body_end < part.end <= turn.end
            else:
                content.append(text)
        return AssistantMessage(
            content="\n".join(filter(None, content)),
            reasoning="\n".join(reasoning) if reasoning else None,
            tool_calls=tuple(calls),
            reasoning_closed=reasoning_closed,
            closed=turn.closed,
        )

    def early(self, tokenizer: Tokenizer, tools: Tools, said: Said, opened: bool | None) -> Early:
        """Return what reads a turn while it arrives."""
        return _EarlyHarmony(ArrivingTurn(tokenizer, _MARKS, opened=opened, together=True), tools, said)


class _Header(NamedTuple):
    """Hold what the header of a message says.

    Args:
        channel: Its channel; None where it names none.
        tool: The tool that it goes to; None where it goes to the user.
    """

    channel: str | None
    tool: str | None


def _read_header(text: str) -> _Header:
    channel, recipient = _CHANNEL.search(text), _RECIPIENT.search(text)
    tool = None if recipient is None else recipient[1].removeprefix("functions.")
    return _Header(None if channel is None else channel[1], tool)


class _Part(NamedTuple):
    """Hold one message of a turn.

    Args:
        start: Its first byte.
        header_end: The byte behind its header; where the message was cut before its body, the header is all of it.
        body_start: The first byte of its body.
        body_end: The byte behind its body.
        end: The byte behind what ends it.
        headed: A header stands there whole, or begins as one.
        closed: Something ends it.
    """

    start: int
    header_end: int
    body_start: int
    body_end: int
    end: int
    headed: bool
    closed: bool


def _parts(turn: TurnText) -> list[_Part]:
    parts: list[_Part] = []
    start, message = 0, None
    for mark in turn.marks(_PATTERN, together=True):
        if mark.text == _MESSAGE.encode():
            message = message or mark
        elif mark.text != _START.encode():
            parts.append(_part(turn, start, message, mark.start, mark.end, closed=True))
            start, message = mark.end, None
        elif mark.start > start:
            parts.append(_part(turn, start, message, mark.start, mark.start, closed=False))
            start, message = mark.start, None
    if start < turn.end:
        parts.append(_part(turn, start, message, turn.end, turn.end, closed=turn.closed))
    return parts


def _part(turn: TurnText, start: int, message: Mark | None, body_end: int, end: int, *, closed: bool) -> _Part:
    if message is not None:
        return _Part(start, message.start, message.end, body_end, end, headed=True, closed=closed)
    headed = turn.raw.startswith(_START.encode(), start, body_end)
    return _Part(start, body_end, body_end, body_end, end, headed=headed, closed=closed)


class _EarlyHarmony(EarlyReader):
    """Read turns of gpt-oss; what a message is for is told by its header, so a text without one waits for the end."""

    _OPENER, _BODY = _START.encode(), _MESSAGE.encode()

    def __init__(self, turn: ArrivingTurn, tools: Tools, said: Said) -> None:
        super().__init__(turn, tools, said)
        self._take = self._rest
        self._restart(b"")

    def _restart(self, raw: bytes) -> None:
        self._head: list[bytes] = [raw] if raw else []
        self._text: list[bytes] = []
        self._header: _Header | None = None
        self._tell: Callable[[bytes], None] = self._head.append

    def _rest(self, event: Event) -> None:
        raw = raw_of(event)
        if isinstance(event, bytes) or (raw == self._BODY and self._header is not None):
            self._tell(raw)
        elif raw == self._BODY:
            self._open(_read_header(b"".join(self._head).decode("utf-8", "replace")))
        elif raw != self._OPENER:
            self._end(closed=True)
            self._restart(b"")
        else:
            self._end(closed=False)
            self._restart(raw)

    def _open(self, header: _Header) -> None:
        self._header = header
        if header.tool is not None:
            self._said.begin(header.tool)
            self._arguments = JsonArguments(self._said, self._tools)
            self._tell = self._argue
        elif header.channel == "analysis":
            self._said.next_reasoning()
            self._tell = self._said.reason
        else:
            self._said.next_text()
            self._tell = self._said.text

    def _argue(self, raw: bytes) -> None:
        self._text.append(raw)
        self._arguments.text(raw)

    def _end(self, *, closed: bool) -> None:
        if self._header is None:
            head = b"".join(self._head)
            header = _read_header(head.decode("utf-8", "replace"))
            bare = header.channel is None and not head.startswith(self._OPENER)
            self._open(_Header(None, None) if bare else header)
            if bare:
                self._tell(head)
        if self._header is not None and self._header.tool is not None:
            body = arguments_of(self._header.tool, b"".join(self._text).decode("utf-8", "replace").strip())
            tell_end(self._said, body, self._tools, closed=closed)


_MARKS = (_START, _MESSAGE, *_ENDS)
_PATTERN = any_of(*_MARKS)
HARMONY = _Harmony()
