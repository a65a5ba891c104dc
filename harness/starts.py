"""Environments at the start of a task: clones of one reset where the world can be copied, else resets of their own."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

import gymnasium as gym

from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import CloneUnsupported
from agentgym_tok.tokens import Ids

__all__ = ["Starts", "TokenGym"]

TokenGym: TypeAlias = gym.Env[Ids, Ids]


class Starts:
    """Start tasks, and close at the end what was made for it.

    Args:
        make_env: Makes a token environment.
        check: Returns the token environment under one, or refuses it.
    """

    def __init__(self, make_env: Callable[[], TokenGym], check: Callable[[TokenGym], TokenEnv]) -> None:
        self._make_env, self._check = make_env, check
        self._made: list[TokenGym] = []
        self._free: list[TokenGym] = []
        self._clones = False
        self._at: tuple[str, int] | None = None
        self._info: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            self._base = self._make()
        except BaseException:
            self._close()
            raise
        # A clone is the bare environment: where somebody wrapped it, his wrappers must stay around it.
        self._clones = self._base is self.tokens
        if not self._clones:
            self._free.append(self._base)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    @property
    def tokens(self) -> TokenEnv:
        """A token environment, for what all of them have in common."""
        return self._check(self._base)

    def start(self, task: str, seed: int, *, again: bool) -> tuple[TokenGym, dict[str, Any]]:
        """Return an environment at the start of a task, and what its `reset` returned.

        Args:
            task: Id of the task.
            seed: Seed of the reset.
            again: The start that was asked for last may be shared, if it was this one.
        """
        if self._clones:
            if not again or self._at != (task, seed):
                self._at = None  # until the reset has worked
                _, self._info = self._base.reset(seed=seed, options={"task": task})
                self._at = (task, seed)
            try:
                return self.tokens.clone(), self._info
            except CloneUnsupported:
                self._clones = False
                self._free.append(self._base)
        env = self._free.pop() if self._free else self._make()
        try:
            _, info = env.reset(seed=seed, options={"task": task})
        except Exception:
            self._free.append(env)
            raise
        return env, info

    def give_back(self, env: TokenGym) -> None:
        """Take back an environment whose episode is over; clones are left to themselves."""
        if not self._clones and env in self._made:
            self._free.append(env)

    def _make(self) -> TokenGym:
        env = self._make_env()
        self._made.append(env)
        self._check(env)
        return env

    def _close(self) -> None:
        for env in self._made:
            env.close()
