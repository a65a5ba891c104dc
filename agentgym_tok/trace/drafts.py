"""Files and folders that appear whole or not at all, and never over something else."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from agentgym_tok.errors import AgentGymTokError, TraceError

__all__ = ["new_file", "new_folder"]


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a folder to fill, which takes its name when all went well and is removed when not.

    Args:
        target: Its name; nothing may stand there.

    Raises:
        TraceError: Something stands there, or nothing can be written beside it.
    """
    with _drafted(target) as draft:
        draft.mkdir()
        yield draft
        for path in (*draft.rglob("*"), draft):
            _sync(path)


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Give a file to write, which takes its name when all went well and is removed when not.

    Args:
        target: Its name; nothing may stand there.

    Raises:
        TraceError: Something stands there, or nothing can be written beside it.
    """
    with _drafted(target) as draft:
        yield draft
        _sync(draft)


@contextlib.contextmanager
def _drafted(target: Path) -> Iterator[Path]:
    draft = target.absolute().with_name(f".{target.absolute().name}.{uuid.uuid4().hex[:12]}.part")
    try:
        _refuse_taken(target)
        draft.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        _refuse_taken(target)
        draft.rename(target)
        _sync(draft.parent)
    except OSError as error:
        if isinstance(error, AgentGymTokError):  # some of ours are OSErrors too
            raise
        fix = "free the disk, or name a place that can be written"
        raise TraceError("it cannot be written", where=target, got=error.strerror or error, fix=fix) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _refuse_taken(target: Path) -> None:
    if os.path.lexists(target):
        fix = "choose another name, or remove what is there"
        raise TraceError("something stands there already", where=target, expected="a new name", fix=fix)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
