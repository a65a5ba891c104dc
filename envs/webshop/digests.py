"""Digests of files that may be large and seldom change."""

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

from agentgym_tok.errors import DataMissing

__all__ = ["file_digest"]

_SETTLED_NS = 2_000_000_000


def file_digest(path: Path, cache: Path) -> str:
    """Return the sha256 of a file, from a note of last time where the file is the same by size and times.

    Args:
        path: The file.
        cache: The folder whose folder `digests` holds the notes.

    Raises:
        DataMissing: There is no such file.
    """
    try:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
            note = cache / "digests" / f"{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:32]}.json"
            known = _read(note)
            if known.get("stamp") == stamp:
                return str(known["sha256"])
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise DataMissing("a WebShop file does not exist", where=path, fix="check the path") from error
    # A file that changed just now may change again without another time.
    if time.time_ns() - stat.st_mtime_ns > _SETTLED_NS:
        _write(note, {"path": str(path.absolute()), "stamp": stamp, "sha256": digest})
    return digest


def _read(note: Path) -> dict[str, object]:
    try:
        known = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(note: Path, content: dict[str, object]) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=note.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(content, file)
    Path(name).replace(note)
