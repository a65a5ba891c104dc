"""A world small enough to see through: it answers with what it was told."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.spaces import Text

from agentgym_tok import ChatFormat
from agentgym_tok.envs import TokenEnv
from agentgym_tok.envs.alfworld.env import ALFWorldEnv


class Parrot(gym.Env[str, str]):
    """Say back each command between fixed words; "win" ends it; "fail" raises."""

    observation_space = Text(10_000)
    action_space = Text(10_000)

    def __init__(self, words: str = "You said: ") -> None:
        self.words = words
        self.said: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.said = []
        return f"{self.words}nothing yet, seed {seed}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "fail":
            raise RuntimeError("the parrot died")
        self.said.append(action)
        won = action == "win"
        return f"{self.words}{action}", float(won), won, action == "cut", {"success": won}


@pytest.fixture(scope="session")
def chat() -> ChatFormat:
    return ChatFormat.builtin()


@pytest.fixture(scope="session")
def parrot(chat: ChatFormat) -> Callable[..., TokenEnv]:
    def make(words: str = "You said: ", **options: Any) -> TokenEnv:
        return TokenEnv(Parrot(words), chat, **options)

    return make


@pytest.fixture(scope="session")
def alfworld() -> Callable[..., ALFWorldEnv]:
    def make(**options: Any) -> ALFWorldEnv:
        return ALFWorldEnv(**{"split": "valid_seen", **options})

    return make
