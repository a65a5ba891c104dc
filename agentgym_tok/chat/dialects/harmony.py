"""Harmony, the format of gpt-oss: a turn is several messages, each with a channel and perhaps a recipient.

    <|channel|>analysis<|message|>...<|end|>
    <|start|>assistant<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>...<|return|>

The recipient may also stand before the channel. Analysis is reasoning; what goes to a recipient is a call; commentary
without one is for the user, as `final` is. A tool's name is the recipient without `functions.`.
"""

import re
from typing import NamedTuple

from agentgym_tok.chat.dialects.dialect import arguments_of, call_of
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText, any_of
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
            header, text = turn.text(part.start, part.header_end), turn.text(part.body_start, part.body_end).strip()
            channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
            reasoning_closed = True
            if channel is None and not part.headed:
                content.append(header.strip())
            elif recipient is not None:
                body = arguments_of(recipient[1].removeprefix("functions."), text)
                outer, inner = (part.start, part.end), (part.body_start, part.body_end)
                calls.append(call_of(turn, outer, inner, body, tools, closed=part.closed))
            elif channel is not None and channel[1] == "analysis":
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


_PATTERN = any_of(_START, _MESSAGE, *_ENDS)
HARMONY = _Harmony()
