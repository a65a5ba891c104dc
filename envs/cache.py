"""Folders that are complete or not there, and where worlds keep what they prepare."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["cache_folder", "new_folder", "publish"]


def cache_folder(world: str, cache: str | Path | None = None) -> Path:
    """Return where a world keeps what it prepares and nobody named a folder for.

    Args:
        world: Name of the world.
        cache: The folder above; by default `AGENTGYM_TOK_CACHE`, else `~/.cache/agentgym_tok`.
    """
    base = cache or os.environ.get("AGENTGYM_TOK_CACHE") or "~/.cache/agentgym_tok"
    return Path(base).expanduser() / world


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make a folder that appears under its name only when it is complete.

    Args:
        target: The folder. Where another process has made it first, that one stays.

    Yields:
        The folder to fill; it is removed where filling it fails.
    """
    with _draft(target.parent) as work:
        yield work
        _settle(work, target)


def publish(above: Path, fill: Callable[[Path], str]) -> Path:
    """Make a folder whose name is known only when it is filled, such as that of its content.

    Args:
        above: The folder that it will stand in; made where it does not exist.
        fill: Fills the new folder and returns its name. Where another process was faster, that one's folder stays.

    Returns:
        The folder; nothing is left where filling it failed.
    """
    with _draft(above) as work:
        target = above / fill(work)
        _settle(work, target)
    return target


@contextmanager
def _draft(above: Path) -> Iterator[Path]:
    above.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".new-", dir=above))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _settle(work: Path, target: Path) -> None:
    work.chmod(0o755)
    try:
        work.rename(target)
    except OSError:
        if not target.is_dir():
            raise
