"""The rollouts of a step, and of a test: which tasks, which seeds, and what they come to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError
from agentgym_tok.harness import Harness
from agentgym_tok.harness.figures import figures
from agentgym_tok.harness.starts import TokenGym
from agentgym_tok.learner.shaping import informative_groups
from agentgym_tok.learner.training.config import TrainConfig
from agentgym_tok.learner.training.task_order import held_out, tasks_of
from agentgym_tok.seeds import derive_seed
from agentgym_tok.trace import Episode

__all__ = ["Played", "Rollouts", "failed_share", "means", "task_ids"]


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """Hold what was played for a step.

    Args:
        kept: The rollouts of the groups that are trained.
        all: All of them.
        corrected: Those of a student that is to learn what an explorer would have done.
    """

    kept: Sequence[Episode]
    all: Sequence[Episode]
    corrected: Sequence[Episode] = ()


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Play the tasks of one world as a configuration wants it. What a run has played already is taken from it.

    Args:
        config: The configuration.
        make_env: Makes an environment.
        tasks: All tasks of it.
    """

    config: TrainConfig
    make_env: Callable[[], TokenGym]
    tasks: Sequence[str]

    async def once(self, harness: Harness, step: int, part: slice = slice(None)) -> list[Episode]:
        """Play the tasks of a step, or a part of them."""
        tasks = tasks_of(self.tasks, step, self.config.tasks, self.config.seed)
        return await self._play(harness, tasks[part], step, 0)

    async def of(self, harness: Harness, step: int) -> Played:
        """Play the tasks of a step; where groups whose returns are all equal are drawn again, other tasks for those."""
        config, played = self.config, await self.once(harness, step)
        if not config.redraw:
            return Played(played, played)
        kept = _informative(played)
        for again in range(1, config.redraw + 1):
            missing = config.tasks - len({episode.group_id for episode in kept})
            if missing <= 0:
                break
            tasks = tasks_of(self.tasks, step, config.tasks, derive_seed(config.seed, "redraw", again))
            more = await self._play(harness, tasks[:missing], step, again)
            played, kept = [*played, *more], [*kept, *_informative(more)]
        return Played(kept, played)

    async def test(self, harness: Harness, step: int) -> dict[str, float]:
        """Play the held-out tasks once each.

        Returns:
            `evaluation/n`, `evaluation/success` and `evaluation/failed` (shares of all: a rollout that failed has not
            solved its task), and the means of other figures of rollouts.
        """
        config = self.config
        episodes = await harness.arun_many(
            self.make_env,
            held_out(self.tasks, config.evaluation.episodes, config.seed),
            concurrency=config.concurrency,
            seed=derive_seed(config.seed, "evaluation", step),
            resume=_run(harness),
        )
        return {
            **means(episodes, "evaluation"),
            "evaluation/n": float(len(episodes)),
            "evaluation/success": fmean(bool(episode.success) for episode in episodes),
            "evaluation/failed": failed_share(episodes),
        }

    async def _play(self, harness: Harness, tasks: Sequence[str], step: int, again: int) -> list[Episode]:
        return await harness.arun_many(
            self.make_env,
            tasks,
            group_size=self.config.group_size,
            concurrency=self.config.concurrency,
            seed=derive_seed(self.config.seed, "rollouts", step, again),
            resume=_run(harness),
        )


def task_ids(make_env: Callable[[], TokenGym]) -> tuple[list[str], TokenEnv]:
    """Return all tasks of a world, and the environment that was asked.

    Raises:
        ConfigError: It is no token environment, or it has no tasks.
    """
    env = make_env()
    tokens = env.unwrapped
    if not isinstance(tokens, TokenEnv) or not tokens.engine.tasks():
        raise ConfigError("there is nothing to play", where="training", got=str(env), expected="a TokenEnv with tasks")
    return list(tokens.engine.tasks()), tokens


def means(episodes: Sequence[Episode], prefix: str) -> dict[str, float]:
    """Return the means of the figures of rollouts, each over those that have it."""
    found: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in figures(episode).items():
            found.setdefault(name, []).append(value)
    return {f"{prefix}/{name}": fmean(values) for name, values in found.items() if name != "seconds"}


def failed_share(episodes: Sequence[Episode]) -> float:
    """Return the share of rollouts that failed at some boundary; 1 of none."""
    return fmean(episode.status != "done" for episode in episodes) if episodes else 1.0


def _informative(episodes: Sequence[Episode]) -> list[Episode]:
    returns: dict[str, dict[str, float]] = {}
    for episode in episodes:
        returns.setdefault(episode.group_id, {})[episode.id] = episode.return_
    groups = set(informative_groups(returns))
    return [episode for episode in episodes if episode.group_id in groups]


def _run(harness: Harness) -> Path | None:
    return None if harness.store is None else harness.store.run
