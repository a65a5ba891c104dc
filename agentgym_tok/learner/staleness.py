"""Which rollouts were drawn by weights that are too old."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.trace import Row

__all__ = ["split_stale", "weight_lags"]

UNKNOWN_LAG = np.iinfo(np.int32).max
"""Of a token whose engine named no weights, or weights that the learner does not know: older than any bound."""


def weight_lags(row: Row, updates: Mapping[str, int]) -> NDArray[np.int32]:
    """Return how many updates ago the weights that drew each token were the newest.

    Args:
        row: A training row.
        updates: How many updates ago each version of the weights was the newest, by the name the engine gave it.

    Returns:
        int32 [T]; 0 where nothing is trained, `UNKNOWN_LAG` where nobody can say.
    """
    known_V = np.array([*(updates.get(name, UNKNOWN_LAG) for name in row.versions), UNKNOWN_LAG], np.int32)
    return np.where(row.mask_T, known_V[row.version_T], 0).astype(np.int32)  # version -1 is the last entry


def split_stale(made: Iterable[Row], updates: Mapping[str, int], bound: int) -> tuple[list[Row], list[Row]]:
    """Part the rollouts that lag at most `bound` updates from those that are stale.

    A rollout stays or goes whole, with its subagents, by its oldest trained token: so the weights of its rows still sum
    to 1, and groups are compared by whole rollouts. What goes leaves all denominators.

    Args:
        made: Rows of any number of rollouts.
        updates: As for `weight_lags`.
        bound: Updates; 0 keeps what the newest weights drew alone.

    Returns:
        The fresh rows and the stale ones, both in order.

    Source: TRL's asynchronous GRPO drops samples behind `max_staleness` (3), by the version of the whole sample.
    """
    made = list(made)
    oldest: dict[str, int] = {}
    for row in made:
        root = row.parent_rollout or row.rollout_id
        oldest[root] = max(oldest.get(root, 0), int(weight_lags(row, updates).max(initial=0)))
    is_stale = [oldest[row.parent_rollout or row.rollout_id] > bound for row in made]
    fresh = [row for row, old in zip(made, is_stale, strict=True) if not old]
    return fresh, [row for row, old in zip(made, is_stale, strict=True) if old]
