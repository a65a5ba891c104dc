"""Writing a trace beside the event loop: in order, in a thread of its own, and never more than memory allows."""

import asyncio
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from agentgym_tok.errors import AgentGymTokError, TraceError

__all__ = ["Journal"]

_Job: TypeAlias = tuple[Callable[[], object], Callable[[Exception], None]]


class Journal:
    """Run jobs that write, one after the other.

    Args:
        most_waiting: Jobs that may wait; whoever has more is told to wait by `room`.
    """

    def __init__(self, most_waiting: int = 1024) -> None:
        self.written = 0
        """Jobs that are done."""
        self.failed = 0
        """Jobs that the store refused."""
        self._most_waiting = most_waiting
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._put = 0
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._work, name="proxy journal")

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Write what waits, and end the thread."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    @property
    def waiting(self) -> int:
        """Jobs that are not done yet."""
        return self._put - self.written - self.failed

    def put(self, job: Callable[[], object], failed: Callable[[Exception], None]) -> None:
        """Have a job done after all others.

        Args:
            job: Writes.
            failed: Is called in the event loop with what the job raised.
        """
        self._put += 1
        self._jobs.put((job, failed))

    async def room(self) -> None:
        """Wait until there is room for more."""
        while self.waiting >= self._most_waiting:
            self._changed.clear()
            await self._changed.wait()

    async def drain(self) -> None:
        """Wait until all is written that was put before."""
        reached = asyncio.Event()
        self.put(lambda: self._loop.call_soon_threadsafe(reached.set), _nothing)
        await reached.wait()

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, failed = entry
            error: Exception | None = None
            try:
                job()
            except AgentGymTokError as refused:
                error = refused
            except Exception as bug:  # noqa: BLE001  # the sessions behind it must still be written
                error = TraceError("a turn could not be written", where="proxy", got=f"{type(bug).__name__}: {bug}")
            self._loop.call_soon_threadsafe(self._done, failed, error)

    def _done(self, failed: Callable[[Exception], None], error: Exception | None) -> None:
        if error is None:
            self.written += 1
        else:
            self.failed += 1
            failed(error)
        self._changed.set()


def _nothing(_: Exception) -> None:
    """Make nothing of an error that cannot come."""
