"""`agentgym-tok bench harness`: what the harness itself costs, with a policy and a world that take no time."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.figures import report
from agentgym_tok.config import Config
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.harness import Harness
from agentgym_tok.policies import BasePolicy
from agentgym_tok.tokens import as_logprobs
from agentgym_tok.trace import Episode, TraceStore
from agentgym_tok.types import Completion, Request

__all__ = ["Options", "run"]

_TURN = "<action>go on</action>"
_MOST_ALONE = 1_000
"""Episodes of which the environment alone is measured."""


class Options(Config):
    """Run episodes whose policy answers at once, in a world that says one sentence, and measure what is left.

    Times are of this process's CPU, all threads together. The same steps of the environment without a harness are
    taken off: they are the world's and the chat format's. Memory is what the process holds after a tenth of the
    episodes and after the last one; none of them is kept.
    """

    episodes: int = Field(default=10_000, ge=10, description="episodes of each of two runs, without and with a store")
    concurrency: int = Field(default=256, ge=1, description="episodes in flight")
    steps: int = Field(default=8, ge=1, description="turns of an episode")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0."""
    chat = ChatFormat.builtin()
    policy = _Instant(chat)
    tasks = [f"room {number}" for number in range(options.episodes)]

    def make_env() -> TokenEnv:
        return TokenEnv(_Corridor(tasks), chat, max_steps=options.steps)

    def play(store: TraceStore | None, tasks: Sequence[str]) -> tuple[float, _Memory]:
        memory = _Memory(len(tasks) // 10, len(tasks))
        harness = Harness(policy, chat, store=store)
        start = time.process_time()
        harness.run_many(make_env, tasks, concurrency=options.concurrency, keep=False, on_episode=memory.on_episode)
        return 1e3 * (time.process_time() - start) / (len(tasks) * options.steps), memory

    play(None, tasks[:50])  # what is made once is made now
    alone = _alone(make_env(), policy.turn_T, tasks[:_MOST_ALONE], options.steps)
    bare, bare_memory = play(None, tasks)
    with tempfile.TemporaryDirectory() as folder, TraceStore(Path(folder), chat=chat) as store:
        stored, stored_memory = play(store, tasks)
    figures = {
        "world and chat alone, ms a turn": alone,
        "harness, ms a turn": bare - alone,
        "store, ms a turn": stored - bare,
        "harness and store, ms a turn": stored - alone,
        "turns a second of CPU, without a store": 1e3 / bare,
        "turns a second of CPU, with a store": 1e3 / stored,
        **{f"{name}, without a store": size for name, size in bare_memory.figures().items()},
        **{f"{name}, with a store": size for name, size in stored_memory.figures().items()},
    }
    shape = f"{options.episodes:,} episodes of {options.steps} turns, {options.concurrency} in flight"
    report(shape, figures, options, options.out)
    return 0


def _alone(env: TokenEnv, turn_T: Any, tasks: Sequence[str], steps: int) -> float:
    """Return what the environment's own steps take, resets included, in ms a turn."""
    start = time.process_time()
    for task in tasks:
        env.reset(options={"task": task})
        for _ in range(steps):
            env.step(turn_T)
    return 1e3 * (time.process_time() - start) / (len(tasks) * steps)


class _Instant(BasePolicy):
    """Say the same turn at once."""

    name = "instant"
    deterministic = True

    def __init__(self, chat: ChatFormat) -> None:
        self.turn_T = chat.encode_turn(_TURN)
        self._logprobs_T = as_logprobs(np.full(len(self.turn_T), -0.5), len(self.turn_T))

    def answer(self, request: Request) -> Completion:
        """Return the turn."""
        return Completion(self.turn_T, self._logprobs_T, logprobs="raw", engine=self.name, sampling=request.sampling)


class _Corridor:
    """Say where one is.

    Args:
        tasks: Ids of tasks, all alike.
    """

    source = "corridor"

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = tasks
        self._task, self._steps = tasks[0], 0

    def tasks(self) -> Sequence[str]:
        """Return the ids."""
        return self._tasks

    def reset(self, task: str | None = None) -> TextObservation:
        """Start at the beginning."""
        self._task, self._steps = task or self._task, 0
        return TextObservation(f"You are at the beginning of a long corridor, in {self._task}. There is a door.")

    def step(self, command: str) -> TextObservation:
        """Go on."""
        self._steps += 1
        return TextObservation(f"You are behind door {self._steps}. There is another door.", valid=command == "go on")

    def clone(self) -> Self:
        """Copy it."""
        twin = type(self)(self._tasks)
        twin._task, twin._steps = self._task, self._steps
        return twin

    def task_info(self) -> Mapping[str, Any]:
        """Return the task."""
        return {"task": self._task}

    def expert_command(self) -> str | None:
        """Know the way."""
        return "go on"


class _Memory:
    """Look at the process's memory after some episodes.

    Args:
        after: After how many of them.
    """

    def __init__(self, *after: int) -> None:
        self._after = after
        self._count = 0
        self._found: dict[str, float] = {}

    def on_episode(self, episode: Episode) -> None:
        """Count one more."""
        del episode
        self._count += 1
        if self._count in self._after:
            self._found[f"memory after {self._count:,} episodes, MB"] = _resident_mb()

    def figures(self) -> Mapping[str, float]:
        """Return what was seen."""
        return self._found


def _resident_mb() -> float:
    """Return what the process holds in memory; not a number where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return float("nan")
    import resource  # noqa: PLC0415  # there where /proc is

    return pages * resource.getpagesize() / 1e6
