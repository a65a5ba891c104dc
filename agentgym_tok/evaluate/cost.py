"""What an evaluation took: tokens and seconds, by part and engine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Episode, Turn

__all__ = ["Cost", "CostCounter"]


class Cost(Config):
    """Hold what one engine took in one part; every attempt at a turn counts, also those of subagents."""

    part: str = ""
    engine: str = Field(description="name and version, as each turn says it; none where no engine answered")
    turns: int = Field(ge=0, description="attempts")
    prompt_tokens: int = Field(ge=0, description="sum of the contexts")
    new_tokens: int = Field(
        ge=0,
        description="of those, what no earlier turn of the episode begins with: all that an engine computes which "
        "forgets nothing",
    )
    turn_tokens: int = Field(ge=0, description="of the turns: sampled, or written by an expert")
    seconds: float = Field(ge=0, description="in which at least one turn was under way: waiting, drawn, or played")
    turn_seconds: float = Field(ge=0, description="sum over turns, those at the same time too")


class CostCounter:
    """Count what episodes took."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sum] = {}
        self._versions: dict[str, None] = {}

    def add(self, episode: Episode, part: str = "") -> None:
        """Count an episode and its subagents."""
        for turn, new in _turns(episode):
            own = self._sums.setdefault((part, turn.completion.engine or "none"), _Sum())
            own.prompt_tokens += len(turn.context)
            own.new_tokens += new
            own.turn_tokens += len(turn.completion.ids_T)
            own.times.append((turn.started, turn.ended))
            self._versions |= dict.fromkeys(version for version, _, _ in turn.completion.weight_versions)

    @property
    def weight_versions(self) -> tuple[str, ...]:
        """The versions of weights that turns name, in the order in which they came."""
        return tuple(self._versions)

    @property
    def seconds(self) -> float:
        """Seconds in which at least one turn of any part was under way."""
        return busy([time for own in self._sums.values() for time in own.times])

    def costs(self) -> list[Cost]:
        """Return what was counted, by part and engine in the order in which they came."""
        return [
            Cost(
                part=part,
                engine=engine,
                turns=len(own.times),
                prompt_tokens=own.prompt_tokens,
                new_tokens=own.new_tokens,
                turn_tokens=own.turn_tokens,
                seconds=round(busy(own.times), 3),
                turn_seconds=round(sum(ended - started for started, ended in own.times), 3),
            )
            for (part, engine), own in self._sums.items()
        ]


@dataclass(slots=True)
class _Sum:
    prompt_tokens: int = 0
    new_tokens: int = 0
    turn_tokens: int = 0
    times: list[tuple[float, float]] = field(default_factory=list)


def busy(times: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one of some spans of time lasted, in their unit.

    It counts no pauses: neither between a kill and going on, nor while a model was loaded.

    Args:
        times: Starts and ends, in any order.
    """
    total, reached = 0.0, -np.inf
    for start, end in sorted(times):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total


def _turns(episode: Episode) -> Iterator[tuple[Turn, int]]:
    """Yield each turn of an episode and its subagents, with how many ids of its context are new."""
    before: Ids | None = None
    for turn in episode.turns:
        ids_T = turn.context.ids
        yield turn, len(ids_T) - (0 if before is None else _common(before, ids_T))
        before = np.concatenate((ids_T, turn.completion.ids_T))
    for child in episode.children:
        yield from _turns(child)


def _common(first_T: Ids, second_T: Ids) -> int:
    """Return how many ids two sequences begin with alike."""
    length = min(len(first_T), len(second_T))
    other = np.flatnonzero(first_T[:length] != second_T[:length])
    return int(other[0]) if len(other) else length
