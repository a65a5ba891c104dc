"""Folders that are complete or not there, and where prepared data is kept."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["cache_folder", "publish"]


def cache_folder(cache: str | Path | None = None) -> Path:
    """Return the folder of prepared corpora: the one given, else `AGENTGYM_TOK_CACHE`, else `~/.cache/agentgym_tok`."""
    base = cache or os.environ.get("AGENTGYM_TOK_CACHE") or "~/.cache/agentgym_tok"
    return Path(base).expanduser() / "searchqa"


def publish(above: Path, fill: Callable[[Path], str]) -> Path:
    """Make a folder that appears under its name only when it is complete.

    Args:
        above: The folder that it will stand in; made where it does not exist.
        fill: Fills the new folder and returns its name. Where another process was faster, that one's folder stays.

    Returns:
        The folder; nothing is left where filling it failed.
    """
    above.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".new-", dir=above))
    try:
        target = above / fill(work)
        work.chmod(0o755)
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target
