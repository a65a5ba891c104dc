"""What an evaluation plays: parts, their tasks, and the share of one process."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import numpy as np

from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate.results import ALFWORLD_LABELS, EpisodeResult
from agentgym_tok.evaluate.run_results import PartResults
from agentgym_tok.harness.resume import Place
from agentgym_tok.harness.slots import slots_of
from agentgym_tok.harness.starts import TokenGym
from agentgym_tok.seeds import derive_seed
from agentgym_tok.types import Sampling

__all__ = ["Part", "PlannedPart", "Share", "choose"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Part:
    """Say what one part of an evaluation is.

    Args:
        name: Unique in the evaluation; seeds derive from it.
        make_env: Makes its token environment.
        episodes: How many tasks, drawn by the seed; all without it.
        samples: Episodes of each task.
        sampling: How turns are drawn.
        world: Its short name, for people; the class of the environment without it.
    """

    name: str
    make_env: Callable[[], TokenGym]
    episodes: int | None = None
    samples: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    world: str = ""


class PlannedPart:
    """Hold a part with what its environment says: tasks, kinds of task, scores.

    Args:
        part: What was asked for.
        seed: Of the evaluation: it draws the tasks. The part's own seed, for the turns, derives from it and the name.

    Raises:
        ConfigError: The environment is no token environment.
        Exception: Whatever its world raises.
    """

    def __init__(self, part: Part, seed: int) -> None:
        env = part.make_env()
        tokens = env.unwrapped
        if not isinstance(tokens, TokenEnv):
            raise ConfigError("an evaluation needs token environments", where=f"part {part.name}", got=str(env))
        self.part = part
        self.seed = derive_seed(seed, part.name)
        self.world = part.world or type(tokens).__name__
        self.source, self.prompting, self.max_steps = tokens.engine.source, tokens.prompting.name, tokens.max_steps
        self.labels, self.metrics = tokens.labels or ALFWORLD_LABELS, dict(tokens.metrics)
        self.tasks = choose(tokens.engine.tasks(), part.episodes, seed)
        self._slots = slots_of(tokens, self.tasks, part.samples, self.seed)
        env.close()

    def places(self, tasks: Sequence[str]) -> set[Place]:
        """Return what names the episodes of some tasks in every process."""
        some = frozenset(tasks)
        return {slot.place for slot in self._slots if slot.task in some}

    def told(self, results: Sequence[EpisodeResult]) -> PartResults:
        """Return what results of this part say of it."""
        openings = {result.task: result.opening for result in results if result.opening}
        return PartResults(
            name=self.part.name,
            world=self.world,
            source=self.source,
            prompting=self.prompting,
            max_steps=self.max_steps,
            seed=self.seed,
            tasks=len(self.tasks),
            samples=self.part.samples,
            tasks_digest=_digest(self.tasks),
            data_digest=_digest([f"{task}\0{openings.get(task, '')}" for task in self.tasks]),
            metrics=self.metrics,
        )


@dataclass(frozen=True, slots=True)
class Share:
    """Name the share of the tasks that one of several processes plays.

    Args:
        number: Which one, from 1.
        of: How many processes.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `NUMBER/OF`.

        Raises:
            ConfigError: It is no such thing.
        """
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError("no share of the tasks", where="shard", got=repr(text), expected="1/4, 2/4, 3/4 or 4/4")
        return cls(int(match[1]), int(match[2]))

    @property
    def shard(self) -> str:
        """Name of the shard that it writes."""
        return f"{self.number}-of-{self.of}"

    def take(self, tasks: Sequence[_T]) -> Sequence[_T]:
        """Return every N-th task."""
        return tasks[self.number - 1 :: self.of]


def choose(tasks: Sequence[str], episodes: int | None, seed: int) -> list[str]:
    """Return so many tasks without repetition, drawn by the seed, in the world's own order; all without a number.

    A smaller number of them is a part of a larger one, so that both runs can be compared.
    """
    if episodes is None or episodes >= len(tasks):
        return list(tasks)
    drawn = np.random.default_rng(seed).permutation(len(tasks))[:episodes]
    return [tasks[int(index)] for index in np.sort(drawn)]


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
