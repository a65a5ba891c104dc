"""Scores of the same sampled tokens in another context, laid beside them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym_tok.errors import InvalidIds, InvalidLogprobs
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Row

__all__ = ["align_scores"]


def align_scores(row: Row, ids_S: Ids, mask_S: ArrayLike, logprobs_S: ArrayLike) -> NDArray[np.float32]:
    """Move a teacher's log-probabilities to the student's places.

    The teacher's context is longer (or shorter) by its own text, so that a token's absolute place says nothing: the
    k-th trained token of one is the k-th of the other, and it must be the same id.

    Args:
        row: The student's row, T tokens.
        ids_S: int32 [S], the sequence that the teacher scored.
        mask_S: bool [S], the same sampled tokens there.
        logprobs_S: float [S], nats; of each id after all before it.

    Returns:
        float32 [T], 0 where the row trains nothing.

    Raises:
        InvalidIds: The teacher scored other tokens.
        InvalidLogprobs: A score is not finite.
    """
    mask_S, logprobs_S = np.asarray(mask_S, bool), np.asarray(logprobs_S, np.float32)
    scored, sampled = np.asarray(ids_S)[mask_S], row.ids_T[row.mask_T]
    if not np.array_equal(scored, sampled):
        raise InvalidIds(
            "teacher and student score other tokens",
            where=f"rollout {row.rollout_id}",
            got=f"{len(scored)} ids, {_difference(scored, sampled)}",
            expected=f"the {len(sampled)} ids that the row trains",
        )
    if not np.isfinite(logprobs_S[mask_S]).all():
        raise InvalidLogprobs(
            "a teacher's log-probability is not finite",
            where=f"rollout {row.rollout_id}",
            fix="score without top-k or top-p: what they cut off has no probability",
        )
    aligned_T = np.zeros(len(row.ids_T), np.float32)
    aligned_T[row.mask_T] = logprobs_S[mask_S]
    return aligned_T


def _difference(scored: NDArray[np.int32], sampled: NDArray[np.int32]) -> str:
    shared = min(len(scored), len(sampled))
    differs = np.flatnonzero(scored[:shared] != sampled[:shared])
    return f"the first other one at {differs[0] if len(differs) else shared}"
