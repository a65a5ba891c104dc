r"""Gemma 4: a notation close to JSON, whose strings stand between `<|"|>` tokens.

    <|channel>thought\n...\n<channel|>
    <|tool_call>call:name{key:<|"|>text<|"|>,number:3,flag:true,inner:{key:[1,2]}}<tool_call|>

Keys stand bare, or as strings.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import THINK, Body, arguments_of
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText
from agentgym_tok.types import AssistantMessage

__all__ = ["GEMMA"]

_QUOTE = '<|"|>'
_CALL = re.compile(r"\s*call:([^{}]*)(?=\{)")
_CHANNEL = re.compile(r"\Athought(?:\n\s*|\Z)")
# A word is a key where a colon follows it; None comes from templates that print Python's values.
_WORD = re.compile(r"([^\s{}\[\],:][^{}\[\],:]*)(:?)")


def _read(turn: TurnText, start: int, end: int, inner: Sequence[Mark], _tools: Tools) -> Body:
    quotes = [mark for mark in inner if mark.text == _QUOTE.encode()]
    head = _CALL.match(turn.text(start, quotes[0].start if quotes else end))
    if head is None or len(quotes) % 2:
        return Body("" if head is None else head[1].strip(), None, "malformed")
    pieces: list[str] = []
    place = start + len(head[0].encode())
    for opener, closer in zip(quotes[::2], quotes[1::2], strict=True):
        pieces += [_as_json(turn.text(place, opener.start)), json.dumps(turn.text(opener.end, closer.start))]
        place = closer.end
    body = arguments_of(head[1].strip(), "".join([*pieces, _as_json(turn.text(place, end))]))
    return body._replace(status="malformed") if body.status == "invalid_json" else body


def _as_json(text: str) -> str:
    """Write the part of the notation between two strings as JSON."""

    def word(match: re.Match[str]) -> str:
        if match[2]:
            return json.dumps(match[1].strip()) + ":"
        return "null" if match[1].strip() == "None" else match[1]

    return _WORD.sub(word, text)


@dataclass(frozen=True)
class _Gemma(BlockDialect):
    """Read blocks, and reasoning that begins with the name of its channel."""

    def read(self, turn: TurnText, tools: Tools) -> AssistantMessage:
        message = super().read(turn, tools)
        if message.reasoning is None:
            return message
        return replace(message, reasoning=_CHANNEL.sub("", message.reasoning))


GEMMA = _Gemma(
    "gemma",
    (("<|tool_call>", "<tool_call|>"),),
    ("<|tool_call>", "<tool_call|>"),
    _read,
    inner=(_QUOTE,),
    reasoning=(("<|channel>", "<channel|>"), THINK),
)
