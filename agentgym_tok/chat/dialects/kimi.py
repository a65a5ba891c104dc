"""Kimi K2: an id that names the tool, and a JSON object.

    <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|>

All calls of a turn stand between `<|tool_calls_section_begin|>` and `<|tool_calls_section_end|>`. The next prompt
repeats the id, which is therefore kept as drawn.
"""

import re
from collections.abc import Sequence

from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import Body, arguments_of
from agentgym_tok.chat.dialects.early_calls import ArrivingBody, JsonArguments, Separated
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText

__all__ = ["KIMI"]

_SEPARATOR = "<|tool_call_argument_begin|>"
_ID = re.compile(r"(?:functions\.)?(.+):[0-9]+")


def _read(turn: TurnText, start: int, end: int, inner: Sequence[Mark], _tools: Tools) -> Body:
    separator = next((mark for mark in inner if mark.text == _SEPARATOR.encode()), None)
    if separator is None:
        return Body("", None, "malformed")
    id_ = turn.text(start, separator.start).strip()
    return arguments_of(_name_of(id_), turn.text(separator.end, end).strip(), id_)


def _name_of(id_: str) -> str:
    named = _ID.fullmatch(id_)
    return "" if named is None else named[1]


class _Arriving(Separated):
    separator = _SEPARATOR.encode()

    def _behind(self, before: str) -> ArrivingBody | None:
        self._said.begin(_name_of(before), before)
        return JsonArguments(self._said, self._tools)


KIMI = BlockDialect(
    "kimi",
    (("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),),
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
    _read,
    _Arriving,
    inner=(_SEPARATOR,),
    frame=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
)
