"""Turns while they arrive: what can be said of one before it ends, in the parts that dialects share.

A reader here tells nothing that could become untrue, and may leave anything to the end, when `Dialect.read` has the
last word. Each is one pass over what arrives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.early_calls import ArrivingBody, JsonEnd
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import ArrivingTurn, Event

__all__ = ["EarlyReader", "StepwiseReader", "raw_of"]


class EarlyReader(ABC):
    """Tell what is certain of a turn while its ids arrive; this much holds every dialect that has reasoning in pairs.

    Args:
        turn: The turn.
        tools: The tools.
        said: Where to tell it.
        pairs: Openers and closers of reasoning.
    """

    def __init__(self, turn: ArrivingTurn, tools: Tools, said: Said, pairs: Sequence[tuple[str, str]] = ()) -> None:
        self._turn = turn
        self._tools = tools
        self._said = said
        self._opened = turn.opened
        self._pairs = {opener.encode(): closer.encode() for opener, closer in pairs}
        self._closers = frozenset(self._pairs.values())
        self._held: list[bytes] = []
        self._blank = True
        self._take: Callable[[Event], None] = self._at_head

    def push(self, index: int) -> None:
        """Take the next id."""
        for event in self._turn.push(index):
            self._take(event)

    def finish(self, stop: int | None) -> None:
        """Take what is left of the turn, and its stop token, which says nothing unless it is a delimiter too."""
        if stop is not None and self._turn.is_delimiter(stop):
            self.push(stop)
        for event in self._turn.finish():
            self._take(event)

    @abstractmethod
    def _rest(self, event: Event) -> None:
        """Take what stands behind the reasoning."""

    def _at_head(self, event: Event) -> None:
        """Look for reasoning as `split_reasoning` does."""
        if isinstance(event, bytes):
            self._held.append(event)
            self._blank = self._blank and not event.strip()
            if not self._blank and self._opened is not None:
                self._go_on(self._in_reasoning if self._opened else self._rest)
        elif self._blank and event.mark.text in self._pairs:
            self._closers = frozenset([self._pairs[event.mark.text]])
            self._take = self._in_reasoning
        elif self._opened or (self._opened is None and event.mark.text in self._closers and not event.quoted):
            self._go_on(self._in_reasoning)
            self._take(event)
        else:
            self._go_on(self._rest)
            self._take(event)

    def _in_reasoning(self, event: Event) -> None:
        if not isinstance(event, bytes) and event.mark.text in self._closers:
            self._take = self._rest
        else:
            self._said.reason(raw_of(event))

    def _go_on(self, take: Callable[[Event], None]) -> None:
        self._take = take
        for raw in self._held:
            take(raw)


class StepwiseReader(EarlyReader):
    """Read dialects whose calls have no closers: step by step through the bytes."""

    _step: Callable[[bytes], bytes]
    """Takes some bytes and returns those that it leaves to the next step."""

    def _bytes(self, raw: bytes) -> None:
        while raw:
            raw = self._step(raw)

    def _wait(self, raw: bytes) -> bytes:  # noqa: ARG002  # only the end tells what this is
        return b""

    def _open_object(self, body: ArrivingBody) -> None:
        self._body = body
        self._json = JsonEnd()
        self._object: list[bytes] = []

    def _read_object(self, raw: bytes) -> int | None:
        """Take bytes of the object and return where in them it ends."""
        stop = self._json.push(raw)
        self._object.append(raw[:stop])
        self._body.text(raw[:stop])
        return stop

    def _text_of_object(self) -> str:
        return b"".join(self._object).decode("utf-8", "replace")


def raw_of(event: Event) -> bytes:
    """Return the bytes of an event."""
    return event if isinstance(event, bytes) else event.mark.text
