"""How far long work is: bars on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

__all__ = ["Amounts"]

_SECONDS_BETWEEN_LINES = 10.0


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
