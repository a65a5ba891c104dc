"""Token accounting: every id of a policy's turn is trained once, or counted under the reason why not."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym_tok.tokens import Context
from agentgym_tok.trace.records import Episode, Row
from agentgym_tok.trace.rows import Objective, family, mask_reason, rows

__all__ = ["Accounting", "account", "account_rows"]


@dataclass(frozen=True, slots=True)
class Accounting:
    """Hold the sums of one objective.

    Args:
        objective: `rl` or `sft`.
        sampled: Ids that policies drew.
        demonstration: Ids of experts and encoded text.
        forced: Ids that were prefilled into turns; counted once for each attempt.
        trained: Ids under mask 1 of all rows.
        masked: Ids that no row trains, by reason.
    """

    objective: Objective
    sampled: int = 0
    demonstration: int = 0
    forced: int = 0
    trained: int = 0
    masked: Mapping[str, int] = field(default_factory=dict)

    @property
    def unaccounted(self) -> int:
        """Ids that are neither trained nor masked with a reason; below zero where some were trained twice."""
        return self.sampled + self.demonstration + self.forced - self.trained - sum(self.masked.values())

    @property
    def complete(self) -> bool:
        """Nothing is missing and nothing counted twice."""
        return self.unaccounted == 0

    def __add__(self, other: "Accounting") -> "Accounting":
        return Accounting(
            self.objective,
            self.sampled + other.sampled,
            self.demonstration + other.demonstration,
            self.forced + other.forced,
            self.trained + other.trained,
            dict(Counter(self.masked) + Counter(other.masked)),
        )

    def table(self) -> list[tuple[str, int]]:
        """Return the lines of a table: what stands in turns, then where it went."""
        origins = [("sampled", self.sampled), ("demonstration", self.demonstration), ("forced", self.forced)]
        masked = [(f"masked: {reason}", count) for reason, count in sorted(self.masked.items())]
        return [*origins, ("trained", self.trained), *masked, ("unaccounted", self.unaccounted)]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {
            "objective": self.objective,
            "sampled": self.sampled,
            "demonstration": self.demonstration,
            "forced": self.forced,
            "trained": self.trained,
            "masked": dict(sorted(self.masked.items())),
            "complete": self.complete,
        }


def account(episodes: Episode | Iterable[Episode], objective: Objective = "rl") -> Accounting:
    """Count where the ids of all turns went.

    Args:
        episodes: One rollout or many, subagents included.
        objective: `rl` or `sft`.
    """
    if isinstance(episodes, Episode):
        return account_rows(episodes, rows(episodes, objective=objective), objective)
    return sum((account(episode, objective) for episode in episodes), Accounting(objective))


def account_rows(episode: Episode, made: Iterable[Row], objective: Objective) -> Accounting:
    """Count where the ids of one rollout went, given the rows that were made of it."""
    origins: Counter[str] = Counter()
    masked: Counter[str] = Counter()
    for member in family(episode):
        for turn in member.turns:
            count, prefilled = len(turn.completion.ids_T), _prefilled(turn.context)
            origins[turn.completion.origin] += count
            origins["forced"] += prefilled
            masked["forced"] += prefilled
            reason = mask_reason(turn, objective)
            if reason is not None:
                masked[reason] += count
    trained = sum(int(row.mask_T.sum()) for row in made)
    sums = (origins["sampled"], origins["demonstration"], origins["forced"])
    return Accounting(objective, *sums, trained, {reason: count for reason, count in masked.items() if count})


def _prefilled(context: Context) -> int:
    """Count the forced ids that a turn begins with: those at the very end of its context."""
    count = 0
    for ancestor in context.lineage():
        if ancestor.span.origin != "forced":
            break
        count += len(ancestor.span)
    return count
