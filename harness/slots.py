"""Which episodes a run has: tasks by their ids, groups by their seeds, members by their place."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import unknown_name
from agentgym_tok.harness.resume import Place
from agentgym_tok.seeds import derive_seed
from agentgym_tok.trace import Episode

__all__ = ["Slot", "slots_of", "task_id"]


@dataclass(slots=True)
class Slot:
    """One episode of a run."""

    task: str
    seed: int
    group_id: str
    replica: int
    episode: Episode | None = None

    @property
    def place(self) -> Place:
        """What names it in every process."""
        return self.group_id, self.replica


def slots_of(tokens: TokenEnv, tasks: Sequence[str | int], group_size: int, seed: int) -> list[Slot]:
    """Return the episodes of a run, those of a task together.

    Args:
        tokens: An environment of the world.
        tasks: Ids or indexes; a task that comes again is another group.
        group_size: Rollouts of each.
        seed: Seed of the run.

    Raises:
        UnknownName: There is no such task.
    """
    ids = [task_id(tokens, task, seed) for task in tasks]
    return [Slot(*group, replica) for group in _groups(ids, seed) for replica in range(group_size)]


def task_id(tokens: TokenEnv, task: Any, seed: int) -> str:
    """Return the id of a task: named, by its index, or drawn by the seed as the environment draws one."""
    if isinstance(task, str):
        return task
    ids = tokens.engine.tasks()
    if task is None:
        return ids[int(np.random.default_rng(seed).integers(len(ids)))]
    if not isinstance(task, (int, np.integer)) or not 0 <= task < len(ids):
        raise unknown_name("task", task, [], where=f"Harness, of {len(ids)} tasks")
    return ids[int(task)]


def _groups(tasks: Iterable[str], seed: int) -> Iterator[tuple[str, int, str]]:
    """Yield task, seed and group id of each group; a task that comes again has another seed, so that it differs."""
    seen: Counter[str] = Counter()
    for task in tasks:
        own = derive_seed(seed, task, "again", seen[task]) if seen[task] else seed
        seen[task] += 1
        yield task, own, f"{derive_seed(own, task):016x}"
