"""Llama 3: JSON objects with `name` and `parameters`, bare or behind `<|python_tag|>`, separated by `;`.

    {"name": "f", "parameters": {...}}; {"name": "g", "parameters": {...}}

Nothing marks a bare call, so an object is a call only where it has a name and parameters. One that is begun at the head
of the turn, behind the tag or behind another call, and never finished, is a broken call.
"""

import re

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.dialect import (
    THINK,
    Early,
    call_of,
    function_of,
    json_end,
    message_of,
    split_reasoning,
    tell_end,
)
from agentgym_tok.chat.dialects.early import StepwiseReader, raw_of
from agentgym_tok.chat.dialects.early_calls import JsonEnd, JsonFunction
from agentgym_tok.chat.dialects.tools import Tools, decode_json
from agentgym_tok.chat.dialects.turn import ArrivingTurn, Event, TurnText, any_of
from agentgym_tok.chat.tokenizer import Tokenizer
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

    def early(self, tokenizer: Tokenizer, tools: Tools, said: Said, opened: bool | None) -> Early:
        """Return what reads a turn while it arrives."""
        return _EarlyLlama(ArrivingTurn(tokenizer, self.delimiters, opened=opened), tools, said)


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


class _EarlyLlama(StepwiseReader):
    """Read turns of Llama's models, whose bare calls are certain at the head of a turn and behind its tag only.

    Elsewhere an object that could be a call waits, and everything behind it: a tag that follows makes it text.
    """

    def __init__(self, turn: ArrivingTurn, tools: Tools, said: Said) -> None:
        super().__init__(turn, tools, said, (THINK,))
        self._step = self._lead
        self._kept: list[bytes] = []
        self._calls = 0
        self._tagged = False
        self._beginning = _Beginning()
        self._events: list[Event] = []
        if not turn.opened:
            self._take = self._at_start

    def _at_start(self, event: Event) -> None:
        """Look for a bare call, before anything else could delimit."""
        self._events.append(event)
        begun = self._beginning.push(raw_of(event).lstrip() if self._beginning.empty else raw_of(event))
        if begun:
            self._call_mode()
            self._step = self._begin
            self._beginning = _Beginning()
            for raw in map(raw_of, self._events):
                self._bytes(raw.lstrip() if self._beginning.empty else raw)
        elif begun is False:
            self._take = self._at_head
            for each in self._events:
                self._take(each)

    def _rest(self, event: Event) -> None:
        if isinstance(event, bytes) or event.quoted or event.mark.text != _TAG.encode():
            self._bytes(raw_of(event))
            return
        self._release()
        self._tagged = True
        self._call_mode()

    def _call_mode(self) -> None:
        self._step = self._between
        self._gap = b""
        self._take = self._in_calls
        self._turn.forget_delimiters()

    def _in_calls(self, event: Event) -> None:
        self._bytes(raw_of(event))

    # ---- text that may hold calls

    def _lead(self, raw: bytes) -> bytes:
        """Keep separators at the head, which belong to a call that follows."""
        match = _SEPARATORS.match(raw)
        rest = raw if match is None else raw[match.end() :]
        self._kept.append(raw[: len(raw) - len(rest)])
        if rest:
            self._step = self._prose
            if not rest.startswith(b"{"):
                self._release()
        return rest

    def _prose(self, raw: bytes) -> bytes:
        before, brace, behind = raw.partition(b"{")
        self._said.text(before)
        if brace:
            self._before = len(self._kept)
            self._kept.append(brace)
            self._step = self._behind_brace
        return behind

    def _behind_brace(self, raw: bytes) -> bytes:
        rest = raw.lstrip()
        self._kept.append(raw[: len(raw) - len(rest)])
        if rest.startswith(b'"'):
            self._json = JsonEnd()
            self._json.push(b"{")
            self._step = self._candidate
        elif rest:
            self._release()
            self._step = self._prose
        return rest

    def _candidate(self, raw: bytes) -> bytes:
        stop = self._json.push(raw)
        self._kept.append(raw[:stop])
        if stop is None:
            return b""
        whole = b"".join(self._kept[self._before :])
        if _is_call(whole.decode("utf-8", "replace"), begun=_BEGUN.match(whole) is not None):
            self._step = self._keep
        else:
            self._release()
            self._step = self._prose
        return raw[stop:]

    def _keep(self, raw: bytes) -> bytes:
        self._kept.append(raw)
        return b""

    def _release(self) -> None:
        for raw in self._kept:
            self._said.text(raw)
        self._kept = []

    # ---- calls

    def _between(self, raw: bytes) -> bytes:
        raw = self._gap + raw
        match = _SEPARATORS.match(raw)
        rest = raw if match is None else raw[match.end() :]
        self._gap = rest if _TAG.encode().startswith(rest) else b""
        if self._gap or not rest:
            return b""
        if not self._tagged or self._calls:
            self._beginning = _Beginning()
            self._step = self._begin
        elif rest.startswith(b"{"):
            self._open_call(certain=True)
        else:
            self._step = self._wait
        return rest

    def _begin(self, raw: bytes) -> bytes:
        begun = self._beginning.push(raw)
        if begun is None:
            return b""
        if begun:
            self._open_call(certain=False)
            return self._beginning.raw
        self._step = self._wait  # text behind a call, or a call that is none of the kind that is certain
        return b""

    def _open_call(self, *, certain: bool) -> None:
        self._open_object(JsonFunction(self._said, self._tools, _KEYS, certain=certain))
        self._certain = certain
        self._step = self._call

    def _call(self, raw: bytes) -> bytes:
        stop = self._read_object(raw)
        if stop is None:
            return b""
        text = self._text_of_object()
        if not self._certain and not _is_call(text, begun=True):
            self._step = self._wait
            return b""
        tell_end(self._said, function_of(text, _KEYS), self._tools)
        self._calls += 1
        self._step = self._between
        return raw[stop:]


class _Beginning:
    """Tell whether bytes that arrive begin as `_BEGUN` says."""

    _SIGN = b'{"name":'
    _INSIDE = range(2, 7)  # places in the sign where no blanks may stand

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._matched = 0

    @property
    def empty(self) -> bool:
        """Nothing came."""
        return not self._pieces

    @property
    def raw(self) -> bytes:
        """What came."""
        return b"".join(self._pieces)

    def push(self, raw: bytes) -> bool | None:
        """Take the next bytes; None while they do not tell."""
        if raw:
            self._pieces.append(raw)
        for byte in raw:
            if self._matched == len(self._SIGN):
                break
            if byte == self._SIGN[self._matched]:
                self._matched += 1
            elif self._matched == 0 or self._matched in self._INSIDE or not bytes([byte]).isspace():
                return False
        return True if self._matched == len(self._SIGN) else None


LLAMA = _Llama()
