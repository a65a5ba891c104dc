"""Running coroutines for callers that have no event loop, and for those, such as notebooks, whose loop is busy."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_blocking"]

_T = TypeVar("_T")


def run_blocking(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Return what a coroutine returns.

    Where a loop runs in this thread already, another one runs in a thread of its own, and this one waits; an interrupt
    then cancels the coroutine and waits for its end.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    result: list[_T] = []
    raised: list[BaseException] = []
    started = threading.Event()
    task: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[_T]]] = []

    async def main() -> None:
        task.append((asyncio.get_running_loop(), asyncio.ensure_future(coroutine)))
        started.set()
        result.append(await task[0][1])

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001  # it is raised again where the caller waits
            raised.append(error)

    thread = threading.Thread(target=work, name="harness", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        started.wait()
        loop, running = task[0]
        loop.call_soon_threadsafe(running.cancel)
        thread.join()
        raise
    if raised:
        raise raised[0]
    return result[0]
