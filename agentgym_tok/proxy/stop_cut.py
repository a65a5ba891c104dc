"""Stop strings as clients know them: the text ends before one; its ids go on to the token that completes it."""

from collections.abc import Iterable, Iterator, Sequence

from agentgym_tok.chat.deltas import TextDelta, TurnDelta

__all__ = ["StopCut"]


class StopCut:
    """Leave out of a turn's pieces what begins with a stop string; one that stands in a call or in reasoning stays.

    Args:
        stop: The stop strings.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self.found: str | None = None
        """The stop string that ended the text."""
        self._stop = tuple(stop)
        self._held = ""

    def add(self, deltas: Sequence[TurnDelta]) -> Iterable[TurnDelta]:
        """Take the next pieces; returns those that certainly come before any stop string."""
        return self._before(deltas) if self._stop else deltas

    def end(self) -> Iterator[TurnDelta]:
        """Yield what was held back and is no stop string after all."""
        held, self._held = self._held, ""
        if held:
            yield TextDelta(held)

    def _before(self, deltas: Sequence[TurnDelta]) -> Iterator[TurnDelta]:
        for delta in deltas:
            if isinstance(delta, TextDelta):
                yield from self._text(delta.text)
            elif self.found is None:
                yield from self.end()
                yield delta

    def _text(self, text: str) -> Iterator[TurnDelta]:
        if self.found is not None:
            return
        text = self._held + text
        places = [(text.find(one), one) for one in self._stop if one in text]
        if places:
            place, self.found = min(places)
            self._held, text = "", text[:place]
        else:
            held = max((_overlap(text, one) for one in self._stop), default=0)
            self._held, text = text[len(text) - held :], text[: len(text) - held]
        if text:
            yield TextDelta(text)


def _overlap(text: str, stop: str) -> int:
    """Return how many of the last characters may be the beginning of a stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
