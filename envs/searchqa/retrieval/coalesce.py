"""Search for many callers at once: what waits together is searched together."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import Retriever

__all__ = ["Coalescer", "Counters", "QueueFull"]


class QueueFull(Exception):
    """More queries wait than may."""


@dataclass(slots=True)
class Counters:
    """Count what a server did since it started; times are in seconds."""

    requests: dict[int, int] = field(default_factory=dict)
    queries: int = 0
    batches: int = 0
    failures: int = 0
    waiting: int = 0
    queue_wait_sum: float = 0.0
    queue_wait_most: float = 0.0
    search_sum: float = 0.0

    def lines(self) -> Iterator[str]:
        """Yield the counters in Prometheus' text form."""
        for status, count in sorted(self.requests.items()):
            yield f'retriever_requests_total{{status="{status}"}} {count}'
        yield f"retriever_queries_total {self.queries}"
        yield f"retriever_batches_total {self.batches}"
        yield f"retriever_failures_total {self.failures}"
        yield f"retriever_waiting_queries {self.waiting}"
        yield f"retriever_queue_wait_seconds_sum {self.queue_wait_sum:.6f}"
        yield f"retriever_queue_wait_seconds_max {self.queue_wait_most:.6f}"
        yield f"retriever_search_seconds_sum {self.search_sum:.6f}"


@dataclass(frozen=True, slots=True)
class _Waiting:
    queries: Sequence[str]
    k: int
    since: float
    answer: asyncio.Future[list[list[Passage]]]


class Coalescer:
    """Put requests into one queue, and give the retriever all that waits, up to a bound, in one call.

    Args:
        retriever: Searches in a thread of its own, one batch at a time.
        most_waiting: How many queries may wait.
        most_at_once: How many queries a batch may grow to.
    """

    def __init__(self, retriever: Retriever, *, most_waiting: int, most_at_once: int) -> None:
        self._retriever, self._most_waiting, self._most_at_once = retriever, most_waiting, most_at_once
        self._thread = ThreadPoolExecutor(1, "retriever")
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self.counters = Counters()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer while the block runs."""
        work = asyncio.create_task(self._work())
        try:
            yield
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            self._thread.shutdown()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Wait for the passages of a request.

        Raises:
            QueueFull: The request would make the queue too long.
            Exception: What the retriever raised.
        """
        if not queries:
            return []
        if self.counters.waiting + len(queries) > self._most_waiting:
            raise QueueFull
        self.counters.waiting += len(queries)
        answer: asyncio.Future[list[list[Passage]]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Waiting(queries, k, time.monotonic(), answer))
        return await answer

    async def _work(self) -> None:
        held: _Waiting | None = None
        while True:
            batch, held = [held or await self._queue.get()], None
            size = len(batch[0].queries)
            while not self._queue.empty() and held is None:
                request = self._queue.get_nowait()
                size += len(request.queries)
                if request.k == batch[0].k and size <= self._most_at_once:
                    batch.append(request)
                else:
                    held = request
            await self._search(batch)

    async def _search(self, batch: list[_Waiting]) -> None:
        counters, start = self.counters, time.monotonic()
        queries = [query for request in batch for query in request.queries]
        for request in batch:
            wait = start - request.since
            counters.queue_wait_sum += wait
            counters.queue_wait_most = max(counters.queue_wait_most, wait)
        counters.waiting -= len(queries)
        try:
            loop = asyncio.get_running_loop()
            found = iter(await loop.run_in_executor(self._thread, self._retriever.search, queries, batch[0].k))
        except Exception as error:  # noqa: BLE001  whatever it is, it is the callers'
            counters.failures += 1
            for request in batch:
                _settle(request, error)
            return
        counters.batches += 1
        counters.queries += len(queries)
        counters.search_sum += time.monotonic() - start
        for request in batch:
            _settle(request, [next(found) for _ in request.queries])


def _settle(request: _Waiting, result: list[list[Passage]] | Exception) -> None:
    if request.answer.done():  # its caller went away
        return
    if isinstance(result, Exception):
        request.answer.set_exception(result)
    else:
        request.answer.set_result(result)
