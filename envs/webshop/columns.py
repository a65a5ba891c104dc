"""Arrays that stand in memory, or in a folder from which all processes of a machine map them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import DataCorrupt, DataMissing

__all__ = ["Columns", "Rows", "load_columns", "save_columns"]

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""Arrays by name; the name of a column is that of its file."""

_ABOUT = "about.json"


class Rows:
    """Offer many byte strings that stand end to end in one array.

    Args:
        data: uint8 [bytes], all rows.
        ends: int64 [rows], where each row ends.
    """

    __slots__ = ("data", "ends")

    def __init__(self, data: NDArray[Any], ends: NDArray[Any]) -> None:
        self.data, self.ends = data, ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self.ends):
            raise IndexError(index)
        start = int(self.ends[index - 1]) if index else 0
        return self.data[start : int(self.ends[index])].tobytes()


def save_columns(folder: Path, columns: Columns, about: Mapping[str, Any]) -> None:
    """Write columns, one `.npy` file each, and `about.json`, which says what they are."""
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column, allow_pickle=False)
    (folder / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")


def load_columns(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Map the columns of a folder, read-only, and read its `about.json`.

    A `.bin` file is a column of bytes.

    Raises:
        DataMissing: There is no such folder, or it is none of ours.
        DataCorrupt: A file is cut off or changed.
    """
    about = folder / _ABOUT
    if not about.is_file():
        raise DataMissing(
            "no prepared WebShop data", where=folder, expected=_ABOUT, fix="run `agentgym-tok data prepare webshop`"
        )
    try:
        columns = {path.stem: _map(path) for path in folder.iterdir() if path.suffix in {".npy", ".bin"}}
        return columns, json.loads(about.read_bytes())
    except (ValueError, EOFError, OSError) as error:
        fix = "remove the folder and prepare the data again"
        raise DataCorrupt("prepared WebShop data cannot be read", where=folder, got=str(error), fix=fix) from error


def _map(path: Path) -> NDArray[Any]:
    # Plain views: each slice of a memmap object costs as much as a small search.
    if path.suffix == ".npy":
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    if not path.stat().st_size:  # nothing cannot be mapped
        return np.zeros(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, "r"))
