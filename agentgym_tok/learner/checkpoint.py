"""One file that a learner goes on from, written whole or not at all."""

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from agentgym_tok.errors import DataCorrupt, DataMissing

__all__ = ["read_checkpoint", "write_checkpoint"]

_FORMAT = 1


def write_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a state; whoever is killed meanwhile finds the file as it was.

    Args:
        path: The file; its folder is made.
        state: Tensors, numbers, texts, lists and mappings of them.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            torch.save({"format": _FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read what `write_checkpoint` wrote; no code in it is run.

    Raises:
        DataMissing: There is no such file.
        DataCorrupt: It is nothing of the kind, or of another version of this library.
    """
    if not Path(path).is_file():
        raise DataMissing("there is no checkpoint", where=str(path), expected="a file that TorchLearner.save wrote")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        version = state.pop("format")
    except (
        RuntimeError,
        EOFError,
        OSError,
        KeyError,
        AttributeError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
    ) as error:
        got = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise DataCorrupt("this is no checkpoint", where=str(path), got=got) from error
    if version != _FORMAT:
        raise DataCorrupt("the checkpoint has another format", where=str(path), got=version, expected=_FORMAT)
    return dict(state)
