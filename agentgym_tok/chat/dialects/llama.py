"""Llama 3: JSON objects with `name` and `parameters`, bare or behind `<|python_tag|>`, separated by `;`.

    {"name": "f", "parameters": {...}}; {"name": "g", "parameters": {...}}

Nothing marks a bare call, so an object is a call only where it has a name and parameters. One that is begun at the head
of the turn, behind the tag or behind another call, and never finished, is a broken call.
"""

import re

from agentgym_tok.chat.dialects.dialect import THINK, call_of, function_of, json_end, message_of, split_reasoning
from agentgym_tok.chat.dialects.tools import Tools, decode_json
from agentgym_tok.chat.dialects.turn import TurnText, any_of
from agentgym_tok.types import AssistantMessage, ToolCall

__all__ = ["LLAMA"]

_TAG = "<|python_tag|>"
_KEYS = ("parameters", "arguments")
_OBJECT = re.compile(rb'\{\s*+"')
_BEGUN = re.compile(rb'\{\s*+"name"\s*+:')
_SEPARATORS = re.compile(rb"(?:[\s;]|<\|python_tag\|>)*+")


class _Llama:
    """Read turns of Llama's models."""

    name = "llama"
    signs = (('{"name": "', '"parameters": '), (_TAG,))
    delimiters = (*THINK, _TAG)
    reasoning = (THINK,)
    _pattern = any_of(*delimiters)

    def read(self, turn: TurnText, tools: Tools) -> AssistantMessage:
        """Read a turn."""
        marks = turn.marks(self._pattern)
        if not marks and not turn.opened and b"{" not in turn.raw:
            return AssistantMessage(turn.text(0, turn.end).strip(), closed=turn.closed)
        if marks and not turn.opened and _BEGUN.match(turn.raw.lstrip()):
            marks = []  # a bare call; what it quotes delimits nothing
        reasoning = split_reasoning(turn, marks, self.reasoning)
        tags = (mark for mark in marks if mark.text == _TAG.encode() and mark.start >= reasoning.end)
        tag = next((mark for mark in tags if not turn.is_quoted(mark)), None)
        place = reasoning.end if tag is None else tag.start
        calls, rest = _calls(turn, place, tools, tagged=tag is not None)
        return message_of(turn, reasoning, [turn.raw[reasoning.end : place], *rest], calls)


def _calls(turn: TurnText, place: int, tools: Tools, *, tagged: bool) -> tuple[list[ToolCall], list[bytes]]:
    """Return the calls from a place on, and the pieces of text between and behind them.

    Args:
        turn: The turn.
        place: Where to begin: at the tag, if there is one.
        tools: The tools.
        tagged: The tag stands there; then what follows is meant as a call, whatever it looks like.
    """
    raw, end = turn.raw, turn.end
    calls: list[ToolCall] = []
    rest: list[bytes] = []
    kept = place
    while place < end:
        start = _behind_separators(raw, place, end)
        expected = tagged and not calls
        begun = expected or _BEGUN.match(raw, start, end) is not None
        found = None if begun else _OBJECT.search(raw, start, end)
        if not begun and found is None:
            break
        start = start if found is None else found.start()
        stop = json_end(raw, start, end) if raw.startswith(b"{", start, end) else None
        if stop is None and not begun:
            break
        place = end if stop is None else stop
        if expected or _is_call(turn.text(start, place), begun=begun):
            adjacent = _behind_separators(raw, kept, start) == start
            rest += [] if adjacent else [raw[kept:start]]
            body = function_of(turn.text(start, place), _KEYS)
            outer = kept if expected else start, place
            calls.append(call_of(turn, outer, (start, place), body, tools, closed=stop is not None or turn.closed))
            kept = place
    return calls, [*rest, raw[kept:end]]


def _is_call(text: str, *, begun: bool) -> bool:
    try:
        value = decode_json(text)
    except ValueError:
        return begun
    return isinstance(value, dict) and "name" in value and any(key in value for key in _KEYS)


def _behind_separators(raw: bytes, start: int, end: int) -> int:
    match = _SEPARATORS.match(raw, start, end)
    return start if match is None else match.end()


LLAMA = _Llama()
