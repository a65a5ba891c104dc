"""One process at a time works at a cell."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["held"]


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold a folder while something is done; yields False where another process has it.

    The lock goes with the process, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
