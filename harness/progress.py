"""How far a run is: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

__all__ = ["Progress"]

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Count episodes and show the success so far, on standard error.

    Args:
        total: How many episodes.
        name: What is going on.
        shown: Show it at all.
    """

    def __init__(self, total: int, name: str, *, shown: bool = True) -> None:
        self._total, self._name, self._shown = total, name, shown
        self._done = self._solved = 0
        self._last = time.monotonic()
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True) if shown and console.is_terminal else None
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
        elif self._shown and time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            sys.stderr.write(f"{text}, {self._total - self._done} to go\n")
