"""What of a turn a client is told, the same whether it comes whole or in pieces."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agentgym_tok.chat.deltas import CallArguments, CallBegun, CallEnded, ReasoningDelta, TextDelta, TurnDelta
from agentgym_tok.proxy.wire.reading import json_object, mended
from agentgym_tok.proxy.wire.reply import CallId, Choice, arguments_text
from agentgym_tok.proxy.wire.tools import read_call
from agentgym_tok.types import AssistantMessage, CallStatus, Message, ToolCall

__all__ = ["Telling", "echo", "pieces_of"]


@dataclass(slots=True)
class _Call:
    """Hold a call that is being told, or held back."""

    name: str
    id: str
    place: int | None
    pieces: list[str] = field(default_factory=list)
    status: CallStatus = "unclosed"


class Telling:
    """Turn what a turn says into what a client can be told, and keep it.

    A call without a name is told as the text that it is. So are, where a protocol has arguments as objects, arguments
    that are none; there calls are told once they have ended, one after the other, and no client runs half a call.

    Args:
        call_id: Names the calls whose dialect gives them no id.
        choice: The turn's place among the choices.
        objects: The protocol has arguments as objects and no texts of white space alone.
    """

    def __init__(self, call_id: CallId, choice: int = 0, *, objects: bool = False) -> None:
        self._call_id, self._choice, self._objects = call_id, choice, objects
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._begun: set[int] = set()
        self._told: list[_Call] = []
        self._blank = ""  # white space at the head of a text, until something follows
        self._in_text = False

    def add(self, delta: TurnDelta) -> Iterator[TurnDelta]:
        """Take the next piece; yields what the client is told, calls with ids and counted anew."""
        match delta:
            case TextDelta():
                yield from self._say(delta)
            case ReasoningDelta(text):
                if text:
                    self._leave_text()
                    self._reasoning.append(text)
                    yield delta
            case CallBegun(index, name, id_):
                call = self._calls[index] = _Call(name, self._name(index, id_), None)
                self._begun.add(index)
                if not self._objects:
                    yield self._begin(call)
            case CallArguments(index, text):
                yield from self._argue(self._calls[index], text)
            case CallEnded(index, status):
                if index in self._calls:
                    yield from self._end(self._calls.pop(index), status)

    def finish(self, turn: AssistantMessage | None = None) -> Iterator[TurnDelta]:
        """End the turn; calls that it broke off are told as far as they went.

        Args:
            turn: The whole turn; its calls that never began, since nothing names them, are told as the text that they
                are.
        """
        for index in sorted(self._calls):
            yield from self._end(self._calls.pop(index), "unclosed")
        for index, call in enumerate(turn.tool_calls if turn is not None else ()):
            if index not in self._begun:
                yield from self._say(TextDelta(call.raw))

    def message(self) -> AssistantMessage:
        """Return what the client was told so far; the raw text of a call is that of its arguments."""
        calls = tuple(_read(call) for call in self._told)
        reasoning = "".join(self._reasoning) or None
        return AssistantMessage("".join(self._text), reasoning, calls)

    def _name(self, index: int, id_: str) -> str:
        # A policy may write one id twice; clients file answers by it.
        taken = any(call.id == id_ for call in (*self._told, *self._calls.values()))
        return id_ if id_ and not taken else self._call_id(self._choice, index)

    def _say(self, delta: TextDelta) -> Iterator[TurnDelta]:
        if self._objects and not self._in_text:
            delta = TextDelta(self._blank + delta.text)
            self._blank = delta.text if not delta.text.strip() else ""
            if self._blank:
                return
        if delta.text:
            self._in_text = True
            self._text.append(delta.text)
            yield delta

    def _leave_text(self) -> None:
        self._in_text, self._blank = False, ""

    def _begin(self, call: _Call) -> CallBegun:
        self._leave_text()
        call.place = len(self._told)
        self._told.append(call)
        return CallBegun(call.place, call.name, call.id)

    def _argue(self, call: _Call, text: str) -> Iterator[TurnDelta]:
        if text:
            call.pieces.append(text)
            if call.place is not None:
                yield CallArguments(call.place, text)

    def _end(self, call: _Call, status: CallStatus) -> Iterator[TurnDelta]:
        call.status, text = status, "".join(call.pieces)
        is_empty = not text.strip(" \t\n\r") and status != "unclosed"
        if call.place is not None:
            if is_empty:
                yield from self._argue(call, "{}")
        elif (written := _object("{}" if is_empty else text)) is not None:
            call.pieces = [written]
            begun = self._begin(call)
            yield begun
            yield CallArguments(begun.index, written)
        else:
            yield from self._say(TextDelta(text))
            return
        assert call.place is not None
        yield CallEnded(call.place, status)


def echo(choice: Choice) -> Message:
    """Return the message that a faithful client sends back for a turn; many clients leave the reasoning out."""
    said = choice.message
    return Message("assistant", said.content, tool_calls=said.tool_calls, reasoning=said.reasoning)


def pieces_of(message: AssistantMessage) -> Iterator[TurnDelta]:
    """Yield a whole turn as pieces: its reasoning, its content and its calls."""
    if message.reasoning is not None:
        yield ReasoningDelta(message.reasoning)
    yield TextDelta(message.content)
    for index, call in enumerate(message.tool_calls):
        if call.name:
            yield CallBegun(index, call.name, call.id)
            yield CallArguments(index, arguments_text(call))
        yield CallEnded(index, call.status)


def _read(call: _Call) -> ToolCall:
    # As requests are read, so that what comes back is what was told.
    text = "".join(call.pieces)
    found = read_call(call.id, call.name, text)
    return replace(found, arguments=found.arguments if text else None, raw=text, status=call.status)


def _object(text: str) -> str | None:
    """Write a JSON object again so that the strictest reader takes it; None where it is none."""
    found = json_object(text)
    try:
        return None if found is None else json.dumps(mended(found)[0], allow_nan=False)
    except ValueError:
        return None
