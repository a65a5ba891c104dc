"""One engine, one loop in a thread: what is played is played in order, each by the weights that it was meant for."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from agentgym_tok.errors import ConfigError
from agentgym_tok.types import Policy

__all__ = ["Ahead", "Player", "Weights"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Hold a version of the weights.

    Args:
        version: Its label.
        state: The tensors by name.
    """

    version: str
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """Hold rollouts that were begun: of which step, by which weights, and what will come of them."""

    step: int
    weights: Weights
    future: "Future[Any]"


class Player:
    """Give an engine its weights, and let it play.

    An update never lands amid a turn here: each piece of work has one version, so that a run can be repeated. At the
    end, what is in flight is cancelled, and a harness records its rollouts as abandoned.

    Args:
        policy: The engine; `update_weights` is how it takes weights.

    Raises:
        ConfigError: It takes none.
    """

    def __init__(self, policy: Policy) -> None:
        if not callable(getattr(policy, "update_weights", None)):
            raise ConfigError(
                "the policy takes no weights, so that it cannot be trained",
                where="training, policy",
                got=policy.name,
                expected="hf:, numpy:, vllm: or vllm-offline:, or a policy of yours that has update_weights",
                fix='name the trained model, such as "hf:{model}"; who is imitated stands in demonstrations',
            )
        self.policy: Any = policy
        self.ahead: deque[Ahead] = deque()
        """What was begun, in order, and is not taken yet."""
        self._version: str | None = None
        self._loop = asyncio.new_event_loop()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="player", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, weights: Weights, work: Callable[[], Awaitable[R]]) -> "Future[R]":
        """Begin work behind all that was begun before it."""
        future: Future[R] = Future()

        async def run() -> None:
            try:
                async with self._turn:  # first come, first served
                    self._take(weights)
                    result = await work()
            except asyncio.CancelledError:
                future.cancel()
                raise
            except BaseException as error:  # noqa: BLE001  # also what ends the process: the caller's thread raises it
                future.set_exception(error)
            else:
                future.set_result(result)

        def start() -> None:
            task = self._loop.create_task(run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._loop.call_soon_threadsafe(start)
        return future

    def begin(self, step: int, weights: Weights, work: Callable[[], Awaitable[Any]]) -> None:
        """Begin the rollouts of a step."""
        self.ahead.append(Ahead(step, weights, self.submit(weights, work)))

    def _take(self, weights: Weights) -> None:
        # A label names the same tensors all through a run.
        if weights.version != self._version:
            self.policy.update_weights(weights.state, weights.version)
            self._version = weights.version

    async def _end(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_default_executor()
