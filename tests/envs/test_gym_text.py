"""Foreign text environments become worlds."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs import GymText, TextEngine, TokenEnv
from agentgym_tok.errors import CloneUnsupported, ResetNeeded, UnknownName, WorldError

Make = Callable[..., TokenEnv]


def test_tasks_are_seeds(parrot: Make) -> None:
    engine = parrot().engine
    assert isinstance(engine, TextEngine)
    assert engine.reset("17").text.endswith("seed 17")
    assert engine.reset().text.endswith("seed 17")
    with pytest.raises(UnknownName):
        engine.reset("1000")
    assert engine.task_info() == {"task": "17"}
    assert engine.expert_command() is None


def test_success_is_what_the_environment_says(parrot: Make) -> None:
    engine = parrot().engine
    engine.reset("0")
    assert not engine.step("x").success
    won = engine.step("win")
    assert (won.success, won.terminated, won.truncated, won.reward) == (True, True, False, 1.0)
    with pytest.raises(ResetNeeded):
        engine.step("x")


def test_a_copy_goes_on_alone(parrot: Make) -> None:
    env = parrot()
    env.reset(seed=0)
    twin = env.clone()
    twin.step(ChatFormat.builtin().encode_turn("x"))
    assert env.engine.env.unwrapped.said == []  # type: ignore[attr-defined]
    assert twin.engine.env.unwrapped.said == ["x"]  # type: ignore[attr-defined]


class Odd(gym.Env[Any, Any]):
    """Observe numbers, and refuse to be copied."""

    observation_space = gym.spaces.Discrete(3)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.int64(1), {}

    def __deepcopy__(self, memo: object) -> "Odd":
        raise TypeError("no copies")


def test_observations_that_are_no_text_are_refused() -> None:
    with pytest.raises(WorldError, match="no text"):
        GymText(Odd()).reset("0")


def test_an_environment_that_cannot_be_copied_says_so() -> None:
    with pytest.raises(CloneUnsupported, match="replay"):
        GymText(Odd()).clone()
