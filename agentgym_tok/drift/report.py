"""What an audit finds: drifts, each of one class and at one place, and their sums."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

from agentgym_tok.errors import ConfigError
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["DRIFT_CLASSES", "Drift", "DriftClass", "DriftReport"]

DriftClass: TypeAlias = Literal[
    "retokenised",
    "template",
    "reasoning_strip",
    "arguments",
    "call_id",
    "system_swap",
    "tools_swap",
    "history_edit",
    "stream_loss",
    "logprob_misalignment",
    "whitespace",
    "control_token",
    "stop_token",
    "bos",
    "other",
]
DRIFT_CLASSES: tuple[DriftClass, ...] = get_args(DriftClass)

_NO_IDS = as_ids([])
_MOST_WRITTEN = 32


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """Hold one place where a text pipeline has other ids than were sent and sampled; compares by identity.

    Args:
        kind: What made them differ.
        turn: Index of the turn that the place belongs to: its own ids, or what was put before it.
        position: The first differing id, counted from the start of that turn's whole sequence (context, then turn).
        count: Ids that the text pipeline has wrong, lost or in excess there: the longer of the two sides.
        exact_T: int32 [T], what was sent or sampled from there to the end of the difference.
        text_T: int32 [T], what the text pipeline has instead.
        detail: For people.
        before_T: int32 [T], a few ids that both have before the place.
        episode: Id of the episode; empty for plain messages.
    """

    kind: DriftClass
    turn: int
    position: int
    count: int
    exact_T: Ids
    text_T: Ids
    detail: str = ""
    before_T: Ids = field(default_factory=lambda: _NO_IDS)
    episode: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values; of long differences the first 32 ids."""
        return {
            "kind": self.kind,
            "episode": self.episode,
            "turn": self.turn,
            "position": self.position,
            "count": self.count,
            "before": self.before_T.tolist(),
            "exact": self.exact_T[:_MOST_WRITTEN].tolist(),
            "text": self.text_T[:_MOST_WRITTEN].tolist(),
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True, eq=False)
class DriftReport:
    """Hold what a text pipeline would have trained on instead; reports of one format add up.

    Args:
        reference: The chat format.
        turns: Policy's turns that were looked at.
        sampled: Their ids.
        wrong: Those that the text pipeline trains as another id, after another context, or never: everything of a
            turn from the first difference of its whole sequence on.
        drifts: Every difference.
        altered: Those among `wrong` whose own id is replaced or lost; the others only have another past.
    """

    reference: str
    turns: int
    sampled: int
    wrong: int
    drifts: tuple[Drift, ...] = ()
    altered: int = 0

    @property
    def rate(self) -> float:
        """`wrong` as a share of `sampled`; 0 where nothing was sampled."""
        return self.wrong / self.sampled if self.sampled else 0.0

    def by_kind(self) -> dict[DriftClass, int]:
        """Return the ids of all drifts (`Drift.count`) by class, most first."""
        tokens: Counter[DriftClass] = Counter()
        for drift in self.drifts:
            tokens[drift.kind] += drift.count
        return dict(tokens.most_common())

    def of_kind(self, kind: DriftClass) -> tuple[Drift, ...]:
        """Return the drifts of one class, in the order of the report."""
        return tuple(drift for drift in self.drifts if drift.kind == kind)

    @classmethod
    def of(cls, reference: str, reports: Iterable[Self]) -> Self:
        """Add reports up.

        Args:
            reference: The chat format of all of them.
            reports: Any number.

        Raises:
            ConfigError: A report belongs to another format.
        """
        parts = list(reports)
        for part in parts:
            if part.reference != reference:
                got = f"{reference} and {part.reference}"
                raise ConfigError("reports of different chat formats do not add up", where="DriftReport", got=got)
        return cls(
            reference,
            sum(part.turns for part in parts),
            sum(part.sampled for part in parts),
            sum(part.wrong for part in parts),
            tuple(drift for part in parts for drift in part.drifts),
            sum(part.altered for part in parts),
        )

    def __add__(self, other: Self) -> Self:
        return self.of(self.reference, (self, other))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        classes: Mapping[DriftClass, int] = self.by_kind()
        return {
            "reference": self.reference,
            "turns": self.turns,
            "sampled": self.sampled,
            "wrong": self.wrong,
            "altered": self.altered,
            "rate": self.rate,
            "by_kind": {
                kind: {"drifts": len(self.of_kind(kind)), "tokens": tokens} for kind, tokens in classes.items()
            },
            "drifts": [drift.to_dict() for drift in self.drifts],
        }
