"""What a learner is given for one update: rows, and what others have scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import ConfigError, InvalidLogprobs
from agentgym_tok.learner.teacher import TeacherContext, TeacherRefusal
from agentgym_tok.trace import Row

__all__ = ["Batch", "Learner", "RowScores"]

RowScores: TypeAlias = Sequence[NDArray[np.floating] | None]
"""For each row float [T], nats, which says nothing where the row trains nothing; None where there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Hold the rows of one update; what is not given, a learner scores itself where its objective needs it.

    Args:
        rows: Of whole rollouts, in any order; for an objective with a policy term `with_advantages` made them.
        teachers: For each row what its teacher reads, of `teacher_contexts`. A row without one is its own teacher: its
            gap is 0.
        teacher_logprobs_T: Instead of `teachers`: what another model said, of `score_teachers`.
        reference_logprobs_T: Of a reference that is not the learner's own.
        old_logprobs_T: What takes the place of the policy before the update, such as the engine's numbers.

    Raises:
        ConfigError: There is not one entry for each row, a teacher is given twice, or advantages are not for all rows.
        InvalidLogprobs: Scores have another length than their row.
    """

    rows: Sequence[Row]
    teachers: Sequence[TeacherContext | TeacherRefusal | None] | None = None
    teacher_logprobs_T: RowScores | None = None
    reference_logprobs_T: RowScores | None = None
    old_logprobs_T: RowScores | None = None

    def __post_init__(self) -> None:
        if self.teachers is not None and self.teacher_logprobs_T is not None:
            raise ConfigError(
                "a teacher's scores are given, and its contexts too", where="Batch", fix="give one of both"
            )
        for name in ("teachers", "teacher_logprobs_T", "reference_logprobs_T", "old_logprobs_T"):
            given = getattr(self, name)
            if given is None:
                continue
            if len(given) != len(self.rows):
                raise ConfigError(
                    "there is not one entry for each row",
                    where=f"Batch.{name}",
                    got=len(given),
                    expected=len(self.rows),
                )
            if name != "teachers":
                _check_lengths(name, self.rows, given)
        without = [row.rollout_id for row in self.rows if row.advantage_T is None]
        if 0 < len(without) < len(self.rows):
            raise ConfigError("some rows have no advantages", where="Batch.rows", got=", ".join(without[:8]))

    @property
    def rollout_ids(self) -> list[str]:
        """Return whose each row is."""
        return [row.rollout_id for row in self.rows]

    @property
    def group_ids(self) -> list[str]:
        """Return the group of each row's root rollout."""
        return [row.group_id for row in self.rows]

    @property
    def returns(self) -> NDArray[np.float64]:
        """Return each row's episode's return, [R]."""
        return np.array([row.reward for row in self.rows], np.float64)

    @property
    def advantages_T(self) -> list[NDArray[np.float32]] | None:  # noqa: N802  # the suffix names the axis
        """Return each row's advantages, float32 [T]; None where none were estimated."""
        found = [row.advantage_T for row in self.rows if row.advantage_T is not None]
        return found if len(found) == len(self.rows) else None


def _check_lengths(name: str, rows: Sequence[Row], given: RowScores) -> None:
    for place, (row, scores_T) in enumerate(zip(rows, given, strict=True)):
        if scores_T is not None and scores_T.shape != row.ids_T.shape:
            raise InvalidLogprobs(
                "scores do not fit their row",
                where=f"Batch.{name}[{place}]",
                got=f"shape {scores_T.shape}",
                expected=f"{row.ids_T.shape}",
            )


@runtime_checkable
class Learner(Protocol):
    """Change a policy by what it did."""

    def update(self, batch: Batch) -> Mapping[str, float]:
        """Take one update, and return its figures by name."""
        ...
