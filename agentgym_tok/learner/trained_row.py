"""A row as a learner computes with it: its trained tokens alone, and what they scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentgym_tok.errors import ConfigError, InvalidIds
from agentgym_tok.learner.alignment import align_scores
from agentgym_tok.learner.batch import Batch
from agentgym_tok.learner.losses import LossConfig
from agentgym_tok.learner.packing import Asked
from agentgym_tok.learner.teacher import TeacherContext
from agentgym_tok.trace import Row

__all__ = ["By", "TrainedRow", "distils", "joined", "read_batch"]

By: TypeAlias = Literal["old", "reference", "teacher"]
"""Whose scores: of the policy before the update, of the model as it was at first, of the teacher."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedRow:
    """Hold the K trained tokens of a row.

    Args:
        row: The row.
        asked: Its sequence, and where its tokens are predicted.
        ids_K: int64 [K].
        temperature_K: float32 [K]; a greedy turn is scored at 1, as engines log it.
        advantage_K: float32 [K], 0 where none were estimated.
        rollout_K: float32 [K], nats, of the engine that drew the tokens; 0 where it said nothing.
        teacher: The teacher's sequence; None where it is the row's own.
        scores: float [K], nats. Without old ones the policy at hand is the old one, without a teacher's the old one is
            the teacher.
    """

    row: Row
    asked: Asked
    ids_K: NDArray[np.int64]
    temperature_K: NDArray[np.float32]
    advantage_K: NDArray[np.float32]
    rollout_K: NDArray[np.float32]
    teacher: Asked | None = None
    scores: Mapping[By, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Row, context: object = None, *, vocab_size: int, limit: int) -> Self:
        """Read a row.

        Args:
            row: The row.
            context: A `TeacherContext`: what its teacher reads. Anything else is no teacher.
            vocab_size: Of the model.
            limit: Most ids that the model reads.

        Raises:
            InvalidIds: An id is unknown, the first token is trained, or the teacher reads other sampled ids.
            ConfigError: A sequence is longer than the model's context.
        """
        where = f"rollout {row.rollout_id}"
        asked, teacher = Asked.of(row.ids_T, row.mask_T, where=where), None
        if isinstance(context, TeacherContext):
            align_scores(row, context.ids_S, context.mask_S, np.zeros(len(context.ids_S)))  # refuses other ids
            teacher = Asked.of(context.ids_S, context.mask_S, where=f"teacher of {where}")
        for one in (asked, teacher or asked):
            if len(one.ids_T) > limit:
                raise ConfigError(
                    "a sequence is longer than the model's context",
                    where=where,
                    got=len(one.ids_T),
                    expected=f"at most {limit}",
                )
        highest = max(int(ids.max(initial=0)) for ids in (row.ids_T, row.ids_T if teacher is None else teacher.ids_T))
        if highest >= vocab_size:
            raise InvalidIds("an id is outside the vocabulary", where=where, got=highest, expected=f"< {vocab_size}")
        mask_T, temperature_K = row.mask_T, row.temperature_T[row.mask_T]
        return cls(
            row,
            asked,
            row.ids_T[mask_T].astype(np.int64),
            np.where(temperature_K > 0, temperature_K, 1).astype(np.float32),
            np.zeros(len(temperature_K), np.float32) if row.advantage_T is None else row.advantage_T[mask_T],
            row.logprobs_T[mask_T],
            teacher,
        )

    def scored(self, by: By, scores_K: Tensor) -> Self:
        """Return the row with these scores too."""
        return replace(self, scores={**self.scores, by: scores_K})

    def spread(self, scores_K: Tensor) -> NDArray[Any]:
        """Return scores at the row's own places, float [T], 0 where nothing is trained."""
        array_K = scores_K.cpu().numpy()
        values_T = np.zeros(len(self.row.ids_T), array_K.dtype)
        values_T[self.row.mask_T] = array_K
        return values_T


def joined(arrays: Sequence[NDArray[Any]], device: torch.device) -> Tensor:
    """Lay arrays one behind the other, on a device."""
    return torch.from_numpy(np.concatenate(arrays)).to(device)


def distils(loss: LossConfig) -> bool:
    """Tell whether an objective needs a teacher."""
    return loss.distillation != "none" and loss.distillation_coefficient > 0


def read_batch(
    batch: Batch, loss: LossConfig, *, vocab_size: int, limit: int, device: torch.device
) -> list[TrainedRow]:
    """Read the rows that have a part in a loss, and the scores that are given with them.

    Args:
        batch: Rows of weight 0, and such as train nothing, have none.
        loss: The objective.
        vocab_size: Of the model.
        limit: Most ids that the model reads.
        device: Where the model lives.

    Raises:
        ConfigError: The objective needs advantages or a teacher that are not there, or no row has a part.
        InvalidIds: See `TrainedRow.of`.
    """
    _check(batch, loss)
    given: Mapping[By, Any] = {
        "old": batch.old_logprobs_T,
        "reference": batch.reference_logprobs_T,
        "teacher": batch.teacher_logprobs_T,
    }
    teachers = batch.teachers if distils(loss) else None
    read: list[TrainedRow] = []
    for place, row in enumerate(batch.rows):
        if row.weight <= 0 or not row.mask_T.any():
            continue
        context = None if teachers is None else teachers[place]
        trained = TrainedRow.of(row, context, vocab_size=vocab_size, limit=limit)
        for by, scores in given.items():
            if scores is not None and scores[place] is not None:
                trained = trained.scored(by, torch.from_numpy(scores[place][row.mask_T]).to(device))
        read.append(trained)
    if not read:
        raise ConfigError("nothing is to be trained", where="TorchLearner.update", got=f"{len(batch.rows)} rows")
    return read


def _check(batch: Batch, loss: LossConfig) -> None:
    where = "TorchLearner.update"
    if loss.policy_coefficient and loss.policy != "nll" and batch.advantages_T is None:
        raise ConfigError(
            "rows without advantages",
            where=where,
            expected=f"advantages, for the policy term {loss.policy!r}",
            fix='estimate them: with_advantages(rows, ADVANTAGES["grpo"]); demonstrations take OBJECTIVES["sft"]',
        )
    is_full = loss.distillation == "opsd_full"
    if distils(loss) and batch.teachers is None and (is_full or batch.teacher_logprobs_T is None):
        raise ConfigError(
            "the objective needs a teacher, and none is given",
            where=where,
            expected="Batch.teachers" if is_full else "Batch.teachers or Batch.teacher_logprobs_T",
            fix="make them with teacher_contexts(episode, rows, skills, chat)",
        )
