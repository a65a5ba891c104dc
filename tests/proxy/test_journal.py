"""What is put into a journal is written in its order, together where it comes so, and one failure costs one job."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentgym_tok.proxy.journal import Journal


class Disk:
    """Write lines, all of a transaction or none."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.commits = 0
        self.busy = threading.Event()

    @contextmanager
    def together(self) -> Iterator[None]:
        before = list(self.lines)
        try:
            yield
        except BaseException:
            self.lines = before
            raise
        self.commits += 1

    def write(self, line: int) -> None:
        self.busy.wait()
        if line < 0:
            raise OSError("no space left")
        self.lines.append(line)


def _written(lines: list[int]) -> tuple[Disk, Journal, list[str]]:
    disk, errors = Disk(), list[str]()

    async def write() -> Journal:
        journal = Journal(disk.together)
        async with journal:
            for line in lines:
                journal.put(lambda line=line: disk.write(line), lambda error: errors.append(str(error)))  # type: ignore[misc]
            assert journal.waiting == len(lines)
            disk.busy.set()
            await journal.drain()
            assert journal.waiting == 0
        return journal

    return disk, asyncio.run(write()), errors


@pytest.mark.parametrize("count", [0, 1, 10, 500])
def test_what_comes_together_is_committed_together_in_its_order(count: int) -> None:
    disk, journal, errors = _written(list(range(count)))
    assert (disk.lines, journal.written, journal.failed, errors) == (list(range(count)), count, 0, [])
    assert disk.commits <= 2 + count // 8


@pytest.mark.parametrize("bad", [0, 3, 9])
def test_what_fails_costs_nothing_that_was_put_beside_it(bad: int) -> None:
    lines = [-1 if line == bad else line for line in range(10)]
    disk, journal, errors = _written(lines)
    assert disk.lines == [line for line in lines if line >= 0]
    assert (journal.written, journal.failed) == (9, 1)
    (error,) = errors
    assert "no space left" in error
