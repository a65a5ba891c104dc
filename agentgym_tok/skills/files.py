"""Files that are whole or not there, and what is said of those that cannot be used."""

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing

__all__ = ["not_valid", "read_json", "read_text", "write_text"]


def read_text(path: Path, what: str) -> str:
    """Return a file's text.

    Args:
        path: The file.
        what: What it should be, for errors: `"skill bank"`.

    Raises:
        DataMissing: There is no such file, or it cannot be read.
        DataCorrupt: It is no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataCorrupt(f"the {what} is no text", where=path, got=str(error), expected="UTF-8") from error
    except OSError as error:
        fix = "look at the path"
        raise DataMissing(f"the {what} cannot be read", where=path, got=error.strerror, fix=fix) from error


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Return the JSON object of a file.

    Raises:
        DataMissing: There is no such file, or it cannot be read.
        DataCorrupt: It holds something else.
    """
    text = read_text(path, what)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataCorrupt(f"the {what} is no JSON", where=path, got=str(error), expected="a JSON object") from error
    if not isinstance(found, dict):
        raise DataCorrupt(
            f"the {what} is no JSON object", where=path, got=type(found).__name__, expected='{"...": ...}'
        )
    return found


def not_valid(error: ValidationError, what: str, path: Path) -> DataCorrupt:
    """Make the error for a file whose content does not validate; it names the first place that is wrong."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    got = f"{first['msg']}, from {first['input']!r:.120}{more}"
    where = f"{path}: {place}" if place else path
    return DataCorrupt(f"the {what} is not valid", where=where, got=got, fix="correct that place in the file")


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader, and whoever comes after a kill, sees the old text or the new one, whole.

    Raises:
        ConfigError: The file cannot be written.
    """
    draft = ""
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        Path(draft).chmod(0o644)  # temporary files are their owner's alone
        Path(draft).replace(path)
    except OSError as error:
        if draft:
            with suppress(OSError):
                Path(draft).unlink()
        fix = "name a file in a folder that is there and can be written"
        raise ConfigError("the file cannot be written", where=path, got=error.strerror, fix=fix) from error
