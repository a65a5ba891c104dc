r"""Gemma 4: a notation close to JSON, whose strings stand between `<|"|>` tokens.

    <|channel>thought\n...\n<channel|>
    <|tool_call>call:name{key:<|"|>text<|"|>,number:3,flag:true,inner:{key:[1,2]}}<tool_call|>

Keys stand bare, or as strings.
"""

import codecs
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import THINK, Body, arguments_of
from agentgym_tok.chat.dialects.early_calls import ArrivingBody
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText
from agentgym_tok.types import AssistantMessage

__all__ = ["GEMMA"]

_QUOTE = '<|"|>'
_CALL = re.compile(r"\s*call:([^{}]*)(?=\{)")
_HEADING = re.compile(r"\Athought(?:\n\s*|\Z)")
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


class _Arriving(ArrivingBody):
    """Tell arguments in Gemma's notation as the JSON that it stands for."""

    def __init__(self, said: Said, tools: Tools) -> None:
        super().__init__(said, tools)
        self._head: list[bytes] | None = []
        self._quoted = False
        self._restart()

    def _restart(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._part: list[str] = []

    def text(self, raw: bytes) -> None:
        """Take the next text."""
        if self._head is not None:
            before, brace, raw = raw.partition(b"{")
            self._head += [before, brace]
            if not brace:
                return
            found = _CALL.match(b"".join(self._head).decode("utf-8", "replace"))
            self._head = None
            self._said.begin("" if found is None else found[1].strip())
            raw = brace + raw
        self._tell(self._decoder.decode(raw))

    def mark(self, raw: bytes) -> None:
        """Take an inner delimiter; quotes stand around texts."""
        if raw != _QUOTE.encode():
            self.text(raw)
            return
        self._head = None  # what is named behind a quote is no call
        self._tell(self._decoder.decode(b"", final=True))
        self._said.argue('"')
        self._quoted = not self._quoted
        self._restart()

    def _tell(self, text: str) -> None:
        if self._quoted:
            self._said.argue(json.dumps(text)[1:-1])
            return
        # Words end at the marks of the notation; what is left behind the last one is blank, or no call.
        end = max(map(text.rfind, "{}[],:")) + 1
        self._part.append(text[:end])
        if end:
            self._said.argue(_as_json("".join(self._part)))
            self._part = []
        self._part.append(text[end:])


@dataclass(frozen=True)
class _Gemma(BlockDialect):
    """Read blocks, and reasoning that begins with the name of its channel."""

    def read(self, turn: TurnText, tools: Tools) -> AssistantMessage:
        message = super().read(turn, tools)
        if message.reasoning is None:
            return message
        return replace(message, reasoning=_HEADING.sub("", message.reasoning))


GEMMA = _Gemma(
    "gemma",
    (("<|tool_call>", "<tool_call|>"),),
    ("<|tool_call>", "<tool_call|>"),
    _read,
    _Arriving,
    inner=(_QUOTE,),
    heading="thought",
    reasoning=(("<|channel>", "<channel|>"), THINK),
)
