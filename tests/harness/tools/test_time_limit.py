"""A call that takes too long is given up: its answer is dropped, and nothing waits for it, not even the end."""

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest

from agentgym_tok.harness.tools import time_limit
from agentgym_tok.harness.tools.time_limit import GivenUp, await_within, run_within

LONG = 60.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Return what a slow tool waits for; at the end it is opened, so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()
    for thread in threading.enumerate():
        if thread.name == "agentgym-tok tool":
            thread.join(LONG)


def test_a_result_and_an_error_are_both_outcomes() -> None:
    def leave() -> NoReturn:
        sys.exit(3)

    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    assert asyncio.run(run_within(LONG, lambda: 1)) == (1, None)
    for work, kind in ((leave, SystemExit), (interrupt, KeyboardInterrupt), (lambda: 1 / 0, ZeroDivisionError)):
        result, error = asyncio.run(run_within(LONG, work))
        assert result is None
        assert type(error) is kind


def test_the_function_sees_the_callers_context_variables() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def work() -> object:
        variable.set(3)
        return await run_within(LONG, variable.get)

    assert asyncio.run(work()) == (3, None)


def test_a_function_that_hangs_is_given_up_and_its_late_answer_dropped(gate: threading.Event) -> None:
    ended = threading.Event()

    def hang() -> str:
        gate.wait()
        ended.set()
        return "late"

    async def work() -> None:
        with pytest.raises(GivenUp) as caught:
            await run_within(0.01, hang)
        assert caught.value.running()
        gate.set()
        assert await run_within(LONG, lambda: ended.wait(LONG)) == (True, None)
        await asyncio.sleep(0.01)  # what comes late may come now, and must do nothing
        assert await run_within(LONG, lambda: 1) == (1, None)

    asyncio.run(work())


def test_an_answer_after_the_end_of_the_loop_is_dropped(gate: threading.Event) -> None:
    threads: list[threading.Thread] = []

    def hang() -> None:
        threads.append(threading.current_thread())
        gate.wait()

    with pytest.raises(GivenUp):
        asyncio.run(run_within(0.05, hang))
    gate.set()
    for thread in threads:
        thread.join(LONG)  # pytest makes an error of what a thread raises
        assert not thread.is_alive()


def test_a_hanging_thread_does_not_keep_the_process_from_ending() -> None:
    code = """
import asyncio, threading
from agentgym_tok.harness.tools.time_limit import GivenUp, run_within
try:
    asyncio.run(run_within(0.05, threading.Event().wait))
except GivenUp:
    print("given up")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG, check=True)
    assert (out.stdout, out.stderr) == ("given up\n", "")


def test_no_more_threads_are_given_up_than_the_limit(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_MOST_GIVEN_UP", 3)

    async def work() -> None:
        for _ in range(3):
            with pytest.raises(GivenUp):
                await run_within(0.01, gate.wait)
        result, error = await run_within(LONG, lambda: 1)
        assert result is None
        assert "3 earlier calls" in str(error)

    asyncio.run(work())
    gate.set()
    for thread in list(time_limit._given_up):
        thread.join(LONG)
    assert asyncio.run(run_within(LONG, lambda: 1)) == (1, None)


def test_who_cancels_the_caller_leaves_the_thread_alone(gate: threading.Event) -> None:
    began = threading.Event()

    def hang() -> None:
        began.set()
        gate.wait()

    async def work() -> None:
        task = asyncio.create_task(run_within(LONG, hang))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())


def test_a_coroutine_is_cancelled_at_its_limit() -> None:
    said: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            said.append("cancelled")
            raise

    async def work() -> None:
        with pytest.raises(GivenUp) as caught:
            await await_within(0.01, hang())
        await asyncio.sleep(0)
        assert not caught.value.running()

    asyncio.run(work())
    assert said == ["cancelled"]


def test_a_coroutine_that_ignores_its_cancellation_is_not_waited_for() -> None:
    async def work() -> None:
        gate = asyncio.Event()

        async def stubborn() -> str:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue
            return "late"

        with pytest.raises(GivenUp) as caught:
            await await_within(0.01, stubborn())
        await asyncio.sleep(0)
        assert caught.value.running()
        gate.set()

    asyncio.run(work())


def test_a_coroutine_that_ends_itself_is_an_outcome() -> None:
    async def cancel() -> NoReturn:
        raise asyncio.CancelledError

    async def leave() -> NoReturn:
        sys.exit(3)

    for work, kind in ((cancel, asyncio.CancelledError), (leave, SystemExit)):
        result, error = asyncio.run(await_within(LONG, work()))
        assert result is None
        assert type(error) is kind
