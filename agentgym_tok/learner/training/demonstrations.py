"""What is imitated: an expert that plays now, or what a run has on record."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError
from agentgym_tok.harness import Harness
from agentgym_tok.harness.blocking import run_blocking
from agentgym_tok.learner.training.task_order import tasks_of
from agentgym_tok.trace import Episode, TraceStore

__all__ = ["RECORDED", "Recorded", "Shown"]

RECORDED = "trace:"
"""What the names of runs that are imitated begin with."""


class Recorded:
    """Take the demonstrations of a step from runs.

    Args:
        runs: Folders of the runs, commas between them; their rollouts are shuffled together.
        chat: They must be of this chat format.
        count: Rollouts of a step.
        seed: Of their order.

    Raises:
        ConfigError: The runs have no rollout that has ended.
        FingerprintMismatch: Their ids are of another chat format.
        TraceError: There is no such run.
    """

    def __init__(self, runs: str, chat: ChatFormat, *, count: int, seed: int) -> None:
        self._count, self._seed = count, seed
        with ExitStack() as opened:
            stores = [opened.enter_context(TraceStore(run, mode="r", chat=chat)) for run in runs.split(",")]
            # The same task in two runs is two rollouts, which one name tells apart.
            self._places = {
                f"{place} {head.id}": (store, head.id)
                for place, store in enumerate(stores)
                for head, status in store.heads()
                if head.parent is None and status == "done"
            }
            if not self._places:
                raise ConfigError("there is nothing to imitate", where=runs, got="no rollout that has ended")
            self._opened = opened.pop_all()

    def of(self, step: int) -> list[Episode]:
        """Return the rollouts of a step, counted from 0."""
        names = tasks_of([*self._places], step, self._count, self._seed)
        return [store.episode(name) for store, name in map(self._places.__getitem__, names)]

    def close(self) -> None:
        """Let go of the runs."""
        self._opened.close()


class Shown:
    """Let an expert play the tasks of a step.

    Args:
        harness: Drives the expert, and writes what it does.
        play: Plays a part of a step's tasks with a harness.
        part: Which.
    """

    def __init__(
        self,
        harness: Harness,
        play: Callable[[Harness, int, slice], Coroutine[Any, Any, list[Episode]]],
        part: slice = slice(None),
    ) -> None:
        self._harness, self._play, self._part = harness, play, part

    def of(self, step: int) -> Sequence[Episode]:
        """Return the rollouts of a step, counted from 0."""
        return run_blocking(self._play(self._harness, step, self._part))

    def close(self) -> None:
        """There is nothing to let go of."""
