"""The tensors of a model as numpy arrays: read from safetensors, or taken from whoever trains it."""

import hashlib
import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import DataCorrupt, DataMissing, PolicyError
from agentgym_tok.policies.small.shape import EMBEDDING, HEAD, Shape

__all__ = ["Tensors", "changed", "read_tensors", "replaced"]

Tensors: TypeAlias = Mapping[str, NDArray[np.float32]]
"""By the names of transformers, those of `Shape.tensors`."""

_T = TypeVar("_T")

_DTYPES: Mapping[str, Any] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


def read_tensors(folder: Path, shape: Shape) -> Tensors:
    """Read a model's weights, as float32.

    The format (https://github.com/huggingface/safetensors): the length of a header, 8 bytes, little-endian; the header,
    which is JSON; the values.

    Args:
        folder: Holds one or more `*.safetensors`.
        shape: What the model must be.

    Raises:
        DataMissing: There is no such file.
        DataCorrupt: One cannot be read, or holds other tensors.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        expected = "a folder with config.json and model.safetensors"
        raise DataMissing("no model could be loaded", where=str(folder), got="no *.safetensors", expected=expected)
    found: dict[str, NDArray[np.float32]] = {}
    for file in files:
        try:
            found |= _read(file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            got = f"{type(error).__name__}: {error}"
            raise DataCorrupt("a model's weights cannot be read", where=str(file), got=got) from error
    own = _once(found, shape)
    if wrong := _misfit(own, shape):
        raise DataCorrupt(wrong[0], where=f"{folder}: {wrong[1]}", got=wrong[2], expected=wrong[3])
    return own


def replaced(state: Mapping[str, Any], shape: Shape) -> Tensors:
    """Take whole weights.

    Args:
        state: Arrays or tensors of torch by name; of tied ones one is enough. Values of another dtype are rounded.
        shape: What the model is.

    Raises:
        PolicyError: They are not this model's.
    """
    own = _once(state, shape)
    if wrong := _misfit(own, shape):
        _refuse(*wrong)
    return {name: _array(values).astype(np.float32) for name, values in own.items()}


def changed(state: Tensors, change: Any, shape: Shape) -> Tensors:
    """Return the weights that a change leads to.

    Args:
        state: Those that it starts from.
        change: A `weights.WeightDelta` between float32 weights.
        shape: What the model is.

    Raises:
        PolicyError: It is broken, belongs to another model, or starts from other weights than these.
    """
    lines = "".join(f"{name} {change.tensors[name].after}\n" for name in sorted(change.tensors))
    checksum = hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()
    if checksum != change.checksum:
        _refuse("the change of weights is broken", "WeightDelta", checksum, change.checksum)
    known = {**state, HEAD: state[EMBEDDING]} if shape.tied else state
    new: dict[str, NDArray[np.float32]] = {}
    for name, part in change.tensors.items():
        if name not in known:
            _refuse("the model has no such tensors", "weights", [name], f"the {len(known)} names of the model")
        new[name] = _written(name, known[name], part)
    return replaced(new, shape)


def _written(name: str, own: NDArray[np.float32], part: Any) -> NDArray[np.float32]:
    """Return a tensor with its changed values, proven to be the one that was sent."""
    values = _array(part.values)
    places_C = None if part.places_C is None else _array(part.places_C)
    shape = own.shape if places_C is None else places_C.shape
    if (values.dtype, values.shape) != (own.dtype, shape):
        got, expected = f"{values.dtype} of shape {values.shape}", f"{own.dtype} of shape {shape}"
        _refuse("a tensor is of another kind", name, got, expected)
    new = own.copy() if places_C is not None else values
    if places_C is not None and len(places_C):
        first, last = int(places_C.min()), int(places_C.max())
        if not 0 <= first <= last < own.size:
            _refuse("a change lies outside its tensor", name, f"{first} to {last}", f"0 to {own.size - 1}")
        new.reshape(-1)[places_C] = values
    hasher = hashlib.blake2b(f"torch.float32 {tuple(new.shape)}".encode(), digest_size=16)
    hasher.update(np.ascontiguousarray(new).data)
    if hasher.hexdigest() != part.after:
        what, fix = "the new weights are not those that were sent", "send the weights whole"
        _refuse(what, name, hasher.hexdigest(), part.after, fix)
    return new


def _read(file: Path) -> dict[str, NDArray[np.float32]]:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        return {name: _values(data, start, entry) for name, entry in header.items()}


def _values(data: mmap.mmap, start: int, entry: Mapping[str, Any]) -> NDArray[np.float32]:
    begin, end = entry["data_offsets"]
    values: NDArray[Any] = np.frombuffer(data[start + begin : start + end], _DTYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":  # the upper half of a float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32).reshape(tuple(entry["shape"]))


def _array(values: Any) -> NDArray[Any]:
    """Return an array of what is one, or a tensor of torch, without importing that."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float().numpy() if values.is_floating_point() else values.numpy()
    return np.asarray(values)


def _once(state: Mapping[str, _T], shape: Shape) -> dict[str, _T]:
    """Leave out the second name of tied tensors."""
    own = dict(state)
    if shape.tied and HEAD in own:
        head = own.pop(HEAD)
        own.setdefault(EMBEDDING, head)
    return own


def _misfit(found: Mapping[str, Any], shape: Shape) -> tuple[str, str, object, object] | None:
    """Return what is wrong, where, what was got and expected; None where all tensors are there and no others."""
    expected = dict(shape.tensors())
    names = f"the {len(expected)} names of the model"
    if unknown := sorted(found.keys() - expected.keys()):
        return "the model has no such tensors", "weights", unknown, names
    if missing := sorted(expected.keys() - found.keys()):
        return "the weights are not whole", "weights", f"none for {missing}", names
    for name, want in expected.items():
        if (got := tuple(found[name].shape)) != want:
            return "a tensor has another shape", name, got, want
    return None


def _refuse(what: str, where: str, got: object, expected: object, fix: str | None = None) -> NoReturn:
    raise PolicyError(what, where=where, got=got, expected=expected, fix=fix)
