"""Writing a trace beside the event loop: in order, in a thread of its own, and never more than memory allows."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, TypeAlias

from agentgym_tok.errors import AgentGymTokError, TraceError

__all__ = ["Journal"]

_Job: TypeAlias = tuple[Callable[[], object], Callable[[Exception], None]]

_GATHER_S = 0.05
"""So long turns wait for others that are committed with them, unless somebody waits for them."""
_MOST_TOGETHER = 64


class Journal:
    """Run jobs that write, one after the other, and commit together what comes at the same time.

    Args:
        together: Commits what is written inside at once, or none of it.
        most_waiting: Jobs that may wait; whoever has more is told to wait by `room`.
    """

    def __init__(self, together: Callable[[], AbstractContextManager[None]], most_waiting: int = 1024) -> None:
        self.written = 0
        """Jobs that are done."""
        self.failed = 0
        """Jobs that the store refused."""
        self._together = together
        self._most_waiting = most_waiting
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._put = 0
        self._changed = asyncio.Event()
        self._awaited = threading.Event()
        self._thread = threading.Thread(target=self._work, name="proxy journal")

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Write what waits, and end the thread."""
        self._awaited.set()
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    @property
    def waiting(self) -> int:
        """Jobs that are not done yet."""
        return self._put - self.written - self.failed

    def put(self, job: Callable[[], object], failed: Callable[[Exception], None]) -> None:
        """Have a job done after all others.

        Args:
            job: Writes, and nothing else: it is done once more where others failed beside it.
            failed: Is called with what the job raised before the next job is done, in the journal's thread.
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
        last = self._put
        while self.written + self.failed < last:
            self._awaited.set()
            self._changed.clear()
            await self._changed.wait()

    def _work(self) -> None:
        more = True
        while more:
            jobs = [self._jobs.get()]
            if self._jobs.qsize() < _MOST_TOGETHER:
                self._awaited.wait(_GATHER_S)
                self._awaited.clear()
            while len(jobs) < _MOST_TOGETHER and not self._jobs.empty():
                jobs.append(self._jobs.get())
            more = None not in jobs
            written = [job for job in jobs if job is not None]
            failed = 0 if self._written_at_once(written) else sum(not _is_written(job) for job in written)
            self._loop.call_soon_threadsafe(self._done, len(written) - failed, failed)

    def _written_at_once(self, jobs: Sequence[_Job]) -> bool:
        """Commit jobs together; false where one of them fails, and none is written."""
        try:
            with self._together():
                for job, _ in jobs:
                    job()
        except Exception:  # noqa: BLE001  # whose it is shows when each is done alone
            return False
        return True

    def _done(self, written: int, failed: int) -> None:
        self.written += written
        self.failed += failed
        self._changed.set()


def _is_written(entry: _Job) -> bool:
    job, failed = entry
    try:
        job()
    except AgentGymTokError as refused:
        failed(refused)
    except Exception as bug:  # noqa: BLE001  # the sessions behind it must still be written
        failed(TraceError("a turn could not be written", where="proxy", got=f"{type(bug).__name__}: {bug}"))
    else:
        return True
    return False
