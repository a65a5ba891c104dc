"""Foreign text environments become worlds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs import GymText, RecordTrace, TextAction, TextEngine, TokenEnv
from agentgym_tok.errors import CloneUnsupported, ResetNeeded, UnknownName, WorldError
from agentgym_tok.trace import RunMeta, TraceStore

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


class Wordless(gym.Env[str, str]):
    """Reward, and say nothing of success."""

    def __init__(self) -> None:
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return "go", {"score": 0}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "end", 1.0, True, False, {"score": 7, "text": "mine"}

    def close(self) -> None:
        self.closed += 1


def test_a_world_that_says_nothing_of_success_is_no_failure_and_its_return_stands(tmp_path: Path) -> None:
    chat = ChatFormat.builtin()
    with TraceStore(tmp_path, meta=RunMeta(fingerprint=chat.fingerprint, vocab_size=chat.vocab_size)) as store:
        env = TextAction(RecordTrace(TokenEnv(Wordless(), chat), store))
        _, info = env.reset(seed=0)
        assert info["success"] is None
        *_, info = env.step("x")
        assert info["success"] is None
        (episode,) = store.episodes()
    assert (episode.success, episode.return_) == (None, 1.0)


def test_the_environments_own_info_is_kept_beside_ours() -> None:
    chat = ChatFormat.builtin()
    env = TokenEnv(Wordless(), chat)
    _, info = env.reset(seed=0)
    assert info["world"] == {"score": 0}
    *_, info = env.step(chat.encode_turn("x"))
    assert info["world"] == {"score": 7, "text": "mine"}
    assert info["text"] == "end"


def test_closing_closes_the_environment_inside() -> None:
    world = Wordless()
    TokenEnv(world, ChatFormat.builtin()).close()
    assert world.closed == 1


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
