"""Environments at the start of a task: clones of one reset where the world can be copied, else resets of their own."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import gymnasium as gym

from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ChatError, CloneUnsupported, ConfigError
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Boundary, Episode, EpisodeHead, Failure, TraceStore

__all__ = ["Starts", "TokenGym", "boundary_of", "failed_start", "in_world"]

TokenGym: TypeAlias = gym.Env[Ids, Ids]

_T = TypeVar("_T")
_MOST_THREADS = 256


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
        self._base_is_free = asyncio.Lock()
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

    async def begin(self, task: str, seed: int, *, again: bool) -> tuple[TokenGym, dict[str, Any]]:
        """Start as `start` does, without holding up the loop where the world blocks."""

        def start() -> tuple[TokenGym, dict[str, Any]]:
            return self.start(task, seed, again=again)

        if self._clones:  # from one base, which nobody else may reset meanwhile
            async with self._base_is_free:
                if self._clones:
                    return await in_world(self.tokens, start)
        return await in_world(self.tokens, start)

    def give_back(self, env: TokenGym) -> None:
        """Take back an environment whose episode is over; clones are left to themselves."""
        if not self._clones and env in self._made:
            self._free.append(env)

    def _make(self) -> TokenGym:
        env = self._make_env()
        if any(env is made for made in self._made):
            raise ConfigError(
                "two episodes would share one environment",
                where="Harness, make_env",
                got=f"{env} for the second time",
                expected="a new environment from each call",
                fix="make it inside the function: lambda: gym.make(...)",
            )
        self._made.append(env)
        self._check(env)
        return env

    def _close(self) -> None:
        for env in self._made:
            env.close()


async def in_world(tokens: TokenEnv, act: Callable[[], _T]) -> _T:
    """Call a world; one whose engine is `blocking`, as one in another process is, is called in a thread."""
    if getattr(tokens.engine, "blocking", False):
        return await asyncio.get_running_loop().run_in_executor(_threads(), act)
    return act()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    # Not the loop's own few threads: worlds that hang until their time is over would take them all.
    return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="world")


def boundary_of(error: Exception) -> Boundary:
    """Say at which boundary a world that does not go on has failed: its words may be what the template refuses."""
    return "harness" if isinstance(error, ChatError) else "world"


def failed_start(head: EpisodeHead, error: Exception, store: TraceStore | None) -> Episode:
    """Return the record of an episode that did not even start, and write it.

    Raises:
        TraceError: The store cannot take it.
    """
    failure = Failure(boundary_of(error), type(error).__name__, str(error))
    if store is not None:
        store.begin(head)
        store.finish(head.id, "failed", failure=failure)
    return Episode(head, (), "failed", failure=failure)
