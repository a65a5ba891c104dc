"""Which tasks a step plays: shuffled anew when all have been played, and known without playing the steps before."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from agentgym_tok.seeds import derive_seed

__all__ = ["held_out", "tasks_of"]


def tasks_of(tasks: Sequence[str], step: int, count: int, seed: int) -> list[str]:
    """Return the tasks of a step.

    Args:
        tasks: All tasks.
        step: Counted from 0.
        count: Tasks of a step; where there are fewer in all, some come twice.
        seed: Of the run.
    """
    places = (divmod(place, len(tasks)) for place in range(step * count, (step + 1) * count))
    return [tasks[_order(len(tasks), epoch, seed)[place]] for epoch, place in places]


def held_out(tasks: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Return so many tasks for tests, always the same, in the world's own order; all without a number."""
    if count is None or count >= len(tasks):
        return list(tasks)
    return [tasks[place] for place in sorted(_order(len(tasks), -1, seed)[:count])]


@lru_cache(maxsize=4)
def _order(count: int, epoch: int, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng(derive_seed(seed, "tasks", epoch)).permutation(count).tolist()
    return order
