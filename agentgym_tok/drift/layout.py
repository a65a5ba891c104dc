"""Where a place in a sequence of ids lies: in the prompt, or in which part of which turn."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from agentgym_tok.drift.pipeline import TextPipeline
from agentgym_tok.tokens import Ids
from agentgym_tok.types import AssistantMessage

__all__ = ["Layout", "Part", "Place", "TurnRange"]

Place: TypeAlias = Literal["prompt", "observation", "reasoning", "call", "content", "stop"]


class TurnRange(NamedTuple):
    """Hold where a turn stands.

    Args:
        turn: Index of the turn in its episode.
        start: Its first id in the sequence.
        stop: The id behind its last one.
    """

    turn: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Its number of ids."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Part:
    """Hold where a place lies.

    Args:
        place: What stands there.
        turn: Number of the turn in its layout: the one that it lies in, or the next one, whether or not there is one.
        call: Number of the tool call, where it lies in one.
    """

    place: Place
    turn: int
    call: int = -1

    @property
    def in_turn(self) -> bool:
        """The policy wrote what stands there."""
        return self.place not in {"prompt", "observation"}


class Layout:
    """Know the turns of one sequence, and read them when asked.

    Args:
        pipeline: Of the chat format.
        ids_T: int32 [T], the sequence.
        turns: The policy's turns in it, in order.
        tools: JSON schemas.
    """

    def __init__(
        self,
        pipeline: TextPipeline,
        ids_T: Ids,
        turns: Sequence[TurnRange],
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._ids_T = ids_T
        self._tools = tools
        self._starts = [turn.start for turn in turns]
        self._read: dict[int, tuple[AssistantMessage, int]] = {}
        self.turns = tuple(turns)

    def ids(self, number: int) -> Ids:
        """Return the ids of a turn."""
        _, start, stop = self.turns[number]
        return self._ids_T[start:stop]

    def said(self, number: int) -> AssistantMessage:
        """Return what a turn says."""
        return self._turn(number)[0]

    def part(self, position: int) -> Part:
        """Return where a position lies."""
        number = bisect_right(self._starts, position) - 1
        if number < 0:
            return Part("prompt", 0)
        _, start, stop = self.turns[number]
        if position >= stop:
            return Part("observation", number + 1)
        said, reasoning_end = self._turn(number)
        inside = position - start
        if said.closed and position == stop - 1:
            return Part("stop", number)
        for place, call in enumerate(said.tool_calls):
            if call.tokens[0] <= inside < call.tokens[1]:
                return Part("call", number, place)
        return Part("reasoning" if inside < reasoning_end else "content", number)

    def repeated_calls(self) -> Iterator[tuple[int, int, int]]:
        """Yield every call whose id an earlier turn's call has too, as its turn's number and its range of ids.

        A result that names such an id answers either of them.
        """
        seen: set[str] = set()
        for number, place in enumerate(self.turns):
            calls = [call for call in self.said(number).tool_calls if call.id]
            for call in calls:
                if call.id in seen:
                    yield number, place.start + call.tokens[0], place.start + call.tokens[1]
            seen.update(call.id for call in calls)

    def _turn(self, number: int) -> tuple[AssistantMessage, int]:
        if number not in self._read:
            ids_T = self.ids(number)
            said = self._pipeline.chat.parse(ids_T, self._tools)
            self._read[number] = said, self._pipeline.reasoning_end(ids_T, said)
        return self._read[number]
