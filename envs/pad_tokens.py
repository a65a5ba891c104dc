"""Fixed shapes for learners that cannot take ids of any length."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from agentgym_tok.errors import ConfigError
from agentgym_tok.spaces import PAD, TokenSpace
from agentgym_tok.tokens import Ids

__all__ = ["PadTokens"]

Padded = NDArray[np.int32]


class PadTokens(gym.Wrapper[Padded, Padded, Ids, Ids]):
    """Pad observations with -1 behind the last id, and take the padding off actions.

    Args:
        env: An environment with token spaces.
        length: Ids of an observation; None takes `max_context`.
        action_length: Ids of an action; None takes `max_action`.

    Raises:
        ConfigError: The environment's spaces are not token spaces.
    """

    def __init__(self, env: gym.Env[Ids, Ids], length: int | None = None, action_length: int | None = None) -> None:
        super().__init__(env)
        observed, acted = env.observation_space, env.action_space
        if not isinstance(observed, TokenSpace) or not isinstance(acted, TokenSpace):
            raise ConfigError("only token spaces can be padded", where="PadTokens", got=f"{observed} and {acted}")
        self._space = TokenSpace(observed.vocab_size, length or observed.max_length)
        high = observed.vocab_size - 1
        self.observation_space = Box(PAD, high, (self._space.max_length,), np.int32)
        self.action_space = Box(PAD, high, (action_length or acted.max_length,), np.int32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Padded, dict[str, Any]]:
        """Start a task; see the environment."""
        ids_T, info = self.env.reset(seed=seed, options=options)
        return self._pad(ids_T), info

    def step(self, action: Padded) -> tuple[Padded, float, bool, bool, dict[str, Any]]:
        """Give the world one turn, padded with -1 or not; see the environment."""
        ids_T, reward, terminated, truncated, info = self.env.step(_strip(action))
        return self._pad(ids_T), float(reward), terminated, truncated, info

    def _pad(self, ids_T: Ids) -> Padded:
        if len(ids_T) > self._space.max_length:
            raise ConfigError(
                "an observation does not fit the fixed shape",
                where="PadTokens",
                got=f"{len(ids_T)} ids",
                expected=f"at most length={self._space.max_length}",
                fix="make the environment with max_context=length, so that it truncates in time",
            )
        return self._space.pad(ids_T)


def _strip(action: Padded) -> Padded:
    """Take off the padding at the end only: a -1 between ids is a mistake that the environment names."""
    if np.ndim(action) != 1:
        return action  # the environment names the mistake
    action = np.asarray(action)
    ids = np.flatnonzero(action != PAD)
    return action[: ids[-1] + 1] if len(ids) else action[:0]
