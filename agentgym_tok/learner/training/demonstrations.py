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
"""What the name of a run that is imitated begins with."""


class Recorded:
    """Take the demonstrations of a step from a run.

    Args:
        run: Folder of the run.
        chat: It must be of this chat format.
        count: Rollouts of a step.
        seed: Of their order.

    Raises:
        ConfigError: The run has no rollout that has ended.
        FingerprintMismatch: Its ids are of another chat format.
        TraceError: There is no run.
    """

    def __init__(self, run: str, chat: ChatFormat, *, count: int, seed: int) -> None:
        self._opened = ExitStack()
        self._store = self._opened.enter_context(TraceStore(run, mode="r", chat=chat))
        self._ids = [head.id for head, status in self._store.heads() if head.parent is None and status == "done"]
        self._count, self._seed = count, seed
        if not self._ids:
            self._opened.close()
            raise ConfigError("there is nothing to imitate", where=run, got="no rollout that has ended")

    def of(self, step: int) -> list[Episode]:
        """Return the rollouts of a step, counted from 0."""
        return [self._store.episode(name) for name in tasks_of(self._ids, step, self._count, self._seed)]

    def close(self) -> None:
        """Let go of the run."""
        self._opened.close()


class Shown:
    """Let an expert play the tasks of a step.

    Args:
        harness: Drives the expert, and writes what it does.
        play: Plays a step with a harness.
    """

    def __init__(self, harness: Harness, play: Callable[[Harness, int], Coroutine[Any, Any, list[Episode]]]) -> None:
        self._harness, self._play = harness, play

    def of(self, step: int) -> Sequence[Episode]:
        """Return the rollouts of a step, counted from 0."""
        return run_blocking(self._play(self._harness, step))

    def close(self) -> None:
        """There is nothing to let go of."""
