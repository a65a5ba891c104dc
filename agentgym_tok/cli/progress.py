"""Progress: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

__all__ = ["Amounts", "Progress"]

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Count episodes and show the success so far, on standard error.

    Args:
        total: How many episodes.
        name: What is going on.
    """

    def __init__(self, total: int, name: str) -> None:
        self._total, self._name = total, name
        self._done = self._solved = 0
        self._last = time.monotonic()
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True) if console.is_terminal else None
        self._task = None if self._bar is None else self._bar.add_task(name, total=total)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, *, solved: bool) -> None:
        """Count one more episode."""
        self._done += 1
        self._solved += solved
        text = f"{self._name}: {self._solved}/{self._done} solved"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, description=text)
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            sys.stderr.write(f"{text}, {self._total - self._done} to go\n")


class Amounts:
    """Show how far each part of long work is, on standard error."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True) if console.is_terminal else None
        self._parts: dict[str, TaskID] = {}
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, part: str, done: int, total: int | None) -> None:
        """Say how much of a part is done, out of how much where that is known."""
        if self._bar is not None:
            if part not in self._parts:
                self._parts[part] = self._bar.add_task(part, total=total)
            self._bar.update(self._parts[part], completed=done, total=total)
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            sys.stderr.write(f"{part}: {done:,}{'' if total is None else f' of {total:,}'}\n")
