"""Work with a time limit: functions in threads, coroutines in the running loop."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

__all__ = ["GivenUp", "Outcome", "await_within", "run_within"]

_T = TypeVar("_T")
Outcome: TypeAlias = tuple[_T, None] | tuple[None, BaseException]
"""What the work returned, or what it raised."""

_MOST_GIVEN_UP = 256
_given_up: set[threading.Thread] = set()
_lock = threading.Lock()


class GivenUp(TimeoutError):
    """The time was over; `running` tells whether the work still goes on, and nobody waits for it any more."""

    def __init__(self, running: Callable[[], bool]) -> None:
        super().__init__("the time was over")
        self.running = running


async def run_within(timeout_s: float, work: Callable[[], _T]) -> Outcome[_T]:
    """Call a function in a thread of its own.

    No thread can be stopped from outside: past the limit it is left to itself, what it still returns is dropped, and
    it does not keep the process from ending. While 256 such threads are alive no other work begins. A function that
    holds Python's own lock, as a power of huge numbers does, stops this loop too: nothing here can give it up.

    Args:
        timeout_s: Longest wait, in seconds.
        work: The function.

    Raises:
        GivenUp: The time was over.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Outcome[_T]] = loop.create_future()
    context = contextvars.copy_context()

    def body() -> None:
        outcome: Outcome[_T]
        try:
            outcome = context.run(work), None
        except BaseException as error:  # noqa: BLE001  # sys.exit() in a tool ends the call, not its harness
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens
            loop.call_soon_threadsafe(answer.set_result, outcome)

    # A daemon, and none of an executor's threads: the end of the process would wait for those.
    thread = threading.Thread(target=body, name="agentgym-tok tool", daemon=True)
    try:
        _refuse_more()
        thread.start()
    except RuntimeError as error:
        return None, error
    try:
        done, _ = await asyncio.wait({answer}, timeout=timeout_s)
    except asyncio.CancelledError:
        _leave(thread)
        raise
    if done:
        return answer.result()
    _leave(thread)
    raise GivenUp(thread.is_alive)


async def await_within(timeout_s: float, work: Coroutine[Any, Any, _T]) -> Outcome[_T]:
    """Await a coroutine; past the limit it is cancelled, and not waited for.

    One that blocks stops the loop, and one that never lets itself be cancelled keeps `asyncio.run` from ending: such
    tools should be plain functions.

    Args:
        timeout_s: Longest wait, in seconds.
        work: The coroutine.

    Raises:
        GivenUp: The time was over.
    """
    task = asyncio.create_task(_outcome(work))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    finally:
        task.cancel()  # does nothing to one that is done
    if not done:
        raise GivenUp(lambda: not task.done())
    if task.cancelled():
        return None, asyncio.CancelledError("the tool cancelled itself")
    error = task.exception()
    return task.result() if error is None else (None, error)


async def _outcome(work: Coroutine[Any, Any, _T]) -> Outcome[_T]:
    try:
        return await work, None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # SystemExit would end the loop
        return None, error


def _refuse_more() -> None:
    with _lock:
        _given_up.difference_update([thread for thread in _given_up if not thread.is_alive()])
        if len(_given_up) >= _MOST_GIVEN_UP:
            raise RuntimeError(f"{len(_given_up)} earlier calls were given up and still run")


def _leave(thread: threading.Thread) -> None:
    with _lock:
        _given_up.add(thread)
