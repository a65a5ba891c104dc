"""An event loop in a thread of its own, for synchronous callers and for callers with loops of their own."""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from agentgym_tok.errors import PolicyError

__all__ = ["LoopThread", "new_loop"]

_T = TypeVar("_T")

new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
"""Makes an event loop: uvloop's where that is installed, which takes less time for itself."""
with contextlib.suppress(ImportError):  # as on Windows
    import uvloop

    new_loop = uvloop.new_event_loop


class LoopThread:
    """Run coroutines from any thread in one loop, so that they share connections and limits.

    Args:
        name: Of the thread.
        at_end: Closes in the loop what belongs to it; must not hold this object.
    """

    def __init__(self, name: str, at_end: Callable[[], Awaitable[None]]) -> None:
        self._loop = new_loop()
        thread = threading.Thread(target=_serve, args=(self._loop, at_end), name=name, daemon=True)
        thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._loop, thread)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return what a coroutine returns; what interrupts the caller cancels it.

        Raises:
            PolicyError: The thread has ended.
        """
        self._require_alive(coroutine)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            del future  # it holds what it raises, which holds this frame

    async def awaited(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return in the caller's loop what a coroutine returns in this one; what cancels the caller cancels it.

        Raises:
            PolicyError: The thread has ended.
        """
        self._require_alive(coroutine)
        if self.is_here():
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def is_here(self) -> bool:
        """Tell whether the caller is in this loop already."""
        return asyncio.get_running_loop() is self._loop

    def _require_alive(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if not self._finalizer.alive:
            coroutine.close()
            raise PolicyError("the policy is closed", where="engine", fix="make another one")

    async def pieces(self, produce: Callable[[Callable[[_T], None]], Awaitable[None]]) -> AsyncGenerator[_T, None]:
        """Yield in the caller's loop what `produce` tells in this one.

        Whoever closes the iterator early cancels `produce`.

        Args:
            produce: Gets a function that takes one piece; what it raises, the iterator raises.
        """
        caller = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[_T] | None] = asyncio.Queue()

        def tell(item: tuple[_T] | None) -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed, and nobody listens
                caller.call_soon_threadsafe(queue.put_nowait, item)

        async def work() -> None:
            try:
                await produce(lambda piece: tell((piece,)))
            finally:
                tell(None)

        future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))
        future.add_done_callback(_seen)
        try:
            while (item := await queue.get()) is not None:
                yield item[0]
            await future
        finally:
            future.cancel()
            del future

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self._finalizer()


def _seen(future: "asyncio.Future[None]") -> None:
    """Look at how it ended, also where nobody listens any more."""
    if not future.cancelled():
        future.exception()


def _serve(loop: asyncio.AbstractEventLoop, at_end: Callable[[], Awaitable[None]]) -> None:
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_finish(asyncio.all_tasks(loop), at_end))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _finish(tasks: "set[asyncio.Task[Any]]", at_end: Callable[[], Awaitable[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await at_end()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    with contextlib.suppress(RuntimeError):  # closed already
        loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()
