"""From the rollouts of a step to the batch of an update."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.chat import ChatFormat
from agentgym_tok.learner.batch import Batch
from agentgym_tok.learner.estimation import with_advantages
from agentgym_tok.learner.staleness import split_stale
from agentgym_tok.learner.teacher import TeacherContext
from agentgym_tok.learner.teacher_scores import score_teachers
from agentgym_tok.learner.training.config import TrainConfig
from agentgym_tok.learner.training.corrections import Corrections
from agentgym_tok.learner.training.rollouts import Played
from agentgym_tok.learner.training.skill_store import SkillStore
from agentgym_tok.trace import Episode, Row, rows
from agentgym_tok.types import Scorer

__all__ = ["Batches", "spliced"]

_NO_IDS = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Batches:
    """Make batches as a configuration wants them.

    Args:
        config: The configuration.
        chat: The chat format.
        skills: What teachers read; None where nobody reads.
        teacher: Another model that scores in their place.
        corrections: What students learn from their own rollouts in imitation; None where they play none.
    """

    config: TrainConfig
    chat: ChatFormat
    skills: SkillStore | None = None
    teacher: Scorer | None = None
    corrections: Corrections | None = None

    def of(self, played: Played, updates: Mapping[str, int]) -> tuple[Batch | None, dict[str, float]]:
        """Return the batch of an update.

        Args:
            played: The rollouts, in whole groups.
            updates: How many updates ago each version of the weights was the newest, for `split_stale`.

        Returns:
            The batch, None where there is nothing to train; and `batch/rollouts`, with `batch/failed` (rollouts that
            something broke off: what they would have come to nobody knows) and `batch/stale` (of weights that were too
            old) or, in imitation, `batch/unsolved` (demonstrations that failed, or did not solve their task) and
            `batch/corrected` (rollouts of the student).
        """
        return self._shown(played) if self.config.imitates else self._played(played.kept, updates)

    def _played(self, episodes: Sequence[Episode], updates: Mapping[str, int]) -> tuple[Batch | None, dict[str, float]]:
        made = {episode.id: rows(episode) for episode in episodes if episode.status == "done"}
        flat = [row for part in made.values() for row in part]
        stale = {_root(row) for row in split_stale(flat, updates, self.config.staleness)[1]}
        kept = [episode for episode in episodes if made.get(episode.id) and episode.id not in stale]
        given = [row for episode in kept for row in made[episode.id]]
        figures = {
            "batch/rollouts": float(len(kept)),
            "batch/failed": float(len(episodes) - len(made)),
            "batch/stale": float(len(stale)),
        }
        # Mini-batches are made of whole groups, of which failures may have left too few.
        if len({row.group_id for row in given}) < self.config.learner.minibatches:
            return None, figures
        compared = with_advantages(given, self.config.advantages)
        return self._taught(kept, [made[episode.id] for episode in kept], compared), figures

    def _taught(self, episodes: Sequence[Episode], parts: Sequence[Sequence[Row]], compared: Sequence[Row]) -> Batch:
        if not self.config.distils:
            return Batch(compared)
        reads = self.skills is not None and self.config.read_by("teacher")
        contexts = self.skills.teach(episodes, parts) if self.skills is not None and reads else None
        if self.teacher is None:
            return Batch(compared, teachers=contexts)
        plain = [TeacherContext.of(row, 0, _NO_IDS) for row in compared]
        return Batch(compared, teacher_logprobs_T=score_teachers(self.teacher, compared, contexts or plain))

    def _shown(self, played: Played) -> tuple[Batch | None, dict[str, float]]:
        episodes = played.kept
        solved = [episode for episode in episodes if episode.status == "done" and episode.success is not False]
        parts = [rows(episode, objective="sft") for episode in solved]
        given = [row for part in parts for row in part]
        figures = {"batch/rollouts": float(len(solved)), "batch/unsolved": float(len(episodes) - len(solved))}
        if self.skills is not None and self.config.read_by("teacher"):
            contexts = self.skills.teach(solved, parts)
            given += [
                spliced(row, context)
                for row, context in zip(given, contexts, strict=True)
                if isinstance(context, TeacherContext) and context.skill_tokens
            ]
        if self.corrections is not None:
            given += [row for episode in played.corrected for row in self.corrections.rows(episode)]
            figures["batch/corrected"] = float(len(played.corrected))
        enough = len({row.group_id for row in given}) >= self.config.learner.minibatches
        return (Batch(given) if given and enough else None), figures


def spliced(row: Row, context: TeacherContext) -> Row:
    """Return the row that a teacher reads, so that a student learns to read skills too.

    Args:
        row: The row.
        context: What its teacher reads.
    """
    places, length = context.places, len(context.ids_S)

    def spread(values_T: NDArray[Any], fill: float) -> NDArray[Any]:
        values_S = np.full(length, fill, values_T.dtype)
        values_S[places] = values_T
        values_S.flags.writeable = False
        return values_S

    return replace(
        row,
        ids_T=context.ids_S,
        mask_T=context.mask_S,
        logprobs_T=spread(row.logprobs_T, 0),
        version_T=spread(row.version_T, -1),
        turn_T=spread(row.turn_T, -1),
        temperature_T=spread(row.temperature_T, 1),
        advantage_T=None,
        experts_T_L_K=None,
        support=None,
    )


def _root(row: Row) -> str:
    return row.parent_rollout or row.rollout_id
