"""Anybody's Gymnasium environment with string observations and actions, as a text engine."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import gymnasium as gym

from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.errors import CloneUnsupported, ConfigError, ResetNeeded, WorldError, unknown_name

__all__ = ["GymText", "as_engine"]


class GymText:
    """Play a Gymnasium environment whose observations and actions are strings.

    Task `"n"` is `reset(seed=n)`. `success` is the environment's own `info["success"]` or `info["won"]`, else None: a
    reward alone says nothing of success. Its whole `info` is the fact `world`.

    Args:
        env: The environment.
        tasks: How many seeds count as tasks.
    """

    def __init__(self, env: "gym.Env[str, str]", tasks: int = 1000) -> None:
        self.env = env
        self.source = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self._tasks = tuple(map(str, range(tasks)))
        self._task = self._tasks[0]
        self._running = False

    def tasks(self) -> Sequence[str]:
        """Return the seeds as task ids."""
        return self._tasks

    def reset(self, task: str | None = None) -> TextObservation:
        """Start the episode of a seed.

        Raises:
            UnknownName: The task is no seed of this engine.
        """
        if task is not None:
            if task not in self._tasks:
                raise unknown_name("task", task, self._tasks, where=self.source)
            self._task = task
        text, info = self.env.reset(seed=int(self._task))
        self._running = True
        return self._observe(text, 0.0, info, terminated=False, valid=None)

    def step(self, command: str) -> TextObservation:
        """Pass a command on.

        Raises:
            ResetNeeded: No episode is running.
        """
        if not self._running:
            raise ResetNeeded("no episode is running", where=self.source, fix="call reset")
        text, reward, terminated, truncated, info = self.env.step(command)
        self._running = not (terminated or truncated)
        valid = bool(info.get("valid_action", True))
        observation = self._observe(text, float(reward), info, terminated=bool(terminated), valid=valid)
        return replace(observation, truncated=True) if truncated else observation

    def _observe(
        self, text: object, reward: float, info: Mapping[str, Any], *, terminated: bool, valid: bool | None
    ) -> TextObservation:
        if not isinstance(text, str):
            raise WorldError(
                "the environment's observation is no text",
                where=self.source,
                got=type(text).__name__,
                expected="str",
                fix="wrap it in a gymnasium ObservationWrapper that returns strings",
            )
        said = info.get("success", info.get("won"))
        success = None if said is None else bool(said)
        commands = tuple(sorted(info.get("admissible_commands", ())))
        return TextObservation(text, reward, terminated, success, valid, commands, facts={"world": dict(info)})

    def clone(self) -> Self:
        """Copy the environment deeply.

        Raises:
            CloneUnsupported: It cannot be copied.
        """
        try:
            twin = copy.copy(self)
            twin.env = copy.deepcopy(self.env)
        except (TypeError, NotImplementedError) as error:
            raise CloneUnsupported(
                "the environment cannot be copied", where=self.source, got=str(error), fix="replay the commands instead"
            ) from error
        return twin

    def task_info(self) -> Mapping[str, Any]:
        """Return the task's id."""
        return {"task": self._task}

    def expert_command(self) -> str | None:
        """Return None: a foreign environment has no expert."""
        return None

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def as_engine(world: object) -> TextEngine:
    """Return the text engine that a world is, or that plays it.

    Raises:
        ConfigError: It is no world.
    """
    if isinstance(world, gym.Env):
        return GymText(world)
    if isinstance(world, TextEngine):
        return world
    members = (name for name in (*TextEngine.__annotations__, *vars(TextEngine)) if not name.startswith("_"))
    missing = ", ".join(name for name in members if not hasattr(world, name))
    raise ConfigError(
        "this is no world",
        where="TokenEnv: world",
        got=f"{type(world).__name__}, which has no {missing}",
        expected="a TextEngine or a gymnasium.Env",
        fix="add what is missing",
    )
