"""The reward that verl-agent and SDAR train on: so much for success, nothing for less."""

from typing import Any

import gymnasium as gym

from agentgym_tok.tokens import Ids

__all__ = ["SuccessReward"]


class SuccessReward(gym.Wrapper[Ids, Ids, Ids, Ids]):
    """Replace the world's reward by one that counts success only.

    The world's own reward stays in `info["raw_reward"]`.

    Args:
        env: A token environment, perhaps wrapped.
        reward: What the step is worth that solves the task.
    """

    def __init__(self, env: gym.Env[Ids, Ids], *, reward: float = 10.0) -> None:
        super().__init__(env)
        self._reward = reward

    def step(self, action: Ids) -> tuple[Ids, Any, bool, bool, dict[str, Any]]:
        """Pass the step on; a task counts as solved where the world says so at its end."""
        ids_T, reward, terminated, truncated, info = self.env.step(action)
        solved = terminated and bool(info["success"])
        return ids_T, self._reward if solved else 0.0, terminated, truncated, {**info, "raw_reward": reward}
