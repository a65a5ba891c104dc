"""New weights for a model that runs: whole, or only the values that changed, and proven equal bit for bit."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import safetensors
import torch
from safetensors.torch import load, save

from agentgym_tok.errors import PolicyError

__all__ = ["TensorDelta", "WeightDelta", "apply", "copy_into", "delta", "digest"]

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers as wide as a value: bits compare where numbers do not (NaN, -0.0)."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorDelta:
    """Hold what changed in one tensor.

    Args:
        places_C: int32 or int64 [C], places in the flat tensor, ascending; None where the values are the whole tensor.
        values: The values there, in the tensor's own dtype: [C], or the tensor.
        after: `digest` of the tensor as it has to be.
    """

    places_C: torch.Tensor | None
    values: torch.Tensor
    after: str

    @property
    def nbytes(self) -> int:
        """Bytes of places and values."""
        return self.values.nbytes + (0 if self.places_C is None else self.places_C.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class WeightDelta:
    """Hold what leads from one version of the weights to the next.

    Args:
        tensors: What changed, by the tensor's name; every tensor is there.
        checksum: Over the names and digests of all tensors.
        changed: How many values differ.
        total: How many values there are.
        full_nbytes: Bytes of the whole weights.
    """

    tensors: Mapping[str, TensorDelta]
    checksum: str
    changed: int
    total: int
    full_nbytes: int

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        return sum(part.nbytes for part in self.tensors.values())

    def to_bytes(self) -> bytes:
        """Write it in the format of safetensors: `value/NAME`, `place/NAME`, and `about`, which is JSON."""
        about = {
            "after": {name: part.after for name, part in self.tensors.items()},
            "checksum": self.checksum,
            "changed": self.changed,
            "total": self.total,
            "full_nbytes": self.full_nbytes,
        }
        written = {"about": torch.from_numpy(np.frombuffer(json.dumps(about).encode(), np.uint8).copy())}
        for name, part in self.tensors.items():
            written[f"value/{name}"] = part.values
            if part.places_C is not None:
                written[f"place/{name}"] = part.places_C
        return save(written)

    @classmethod
    def from_bytes(cls, data: bytes) -> "WeightDelta":
        """Read what `to_bytes` wrote; `apply` checks the rest.

        Raises:
            PolicyError: It is nothing of the kind.
        """
        try:
            read = load(data)
            about = json.loads(read["about"].numpy().tobytes())
            tensors = {
                name: TensorDelta(read.get(f"place/{name}"), read[f"value/{name}"], after)
                for name, after in about.pop("after").items()
            }
            return cls(tensors, **about)
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
            got = f"{len(data)} bytes: {type(error).__name__}: {error}"
            raise PolicyError("these bytes are no change of weights", where="WeightDelta", got=got) from error


def delta(
    before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], *, full_above: float = 0.25
) -> WeightDelta:
    """Find the values that changed.

    Args:
        before: A state dict, in the dtype of the receiver.
        after: The same names, shapes and dtypes.
        full_above: Share of changed values above which a tensor travels whole. Lower it where applying, rather than
            sending, is what takes long; above a third, places and 16-bit values are more bytes than the tensor.

    Raises:
        PolicyError: Names, shapes or dtypes differ.
    """
    if before.keys() != after.keys():
        _refuse("the two weights name other tensors", "delta", sorted(before.keys() ^ after.keys()), "the same names")
    tensors: dict[str, TensorDelta] = {}
    changed = 0
    for name, new in after.items():
        old = before[name]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            _refuse("a tensor is of another kind", name, _kind(new), _kind(old))
        differs = _bits(new) != _bits(old).to(new.device)
        count = int(differs.sum())
        changed += count
        if count > full_above * new.numel():
            tensors[name] = TensorDelta(None, new.detach().clone(), digest(new))
            continue
        places_C = differs.nonzero()[:, 0]
        values_C = new.detach().reshape(-1)[places_C]
        narrow = torch.int32 if new.numel() < 2**31 else torch.int64
        tensors[name] = TensorDelta(places_C.to(narrow), values_C, digest(new))
    total, size = sum(part.numel() for part in after.values()), sum(part.nbytes for part in after.values())
    return WeightDelta(tensors, _checksum(tensors), changed, total, size)


@torch.no_grad()
def apply(state: Mapping[str, torch.Tensor], change: WeightDelta) -> None:
    """Write changed values into weights, in place; where the result is not what was sent, all is as it was before.

    Args:
        state: A state dict whose tensors are those of the model.
        change: What `delta` found between this state and the next.

    Raises:
        PolicyError: The change is broken, belongs to another model, or starts from other weights than these.
    """
    if _checksum(change.tensors) != change.checksum:
        _refuse("the change of weights is broken", "WeightDelta", _checksum(change.tensors), change.checksum)
    _check_names(state, change.tensors)
    for name, part in change.tensors.items():
        _check_part(name, state[name], part)
    undo: list[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]] = []
    for name, part in change.tensors.items():
        own = state[name]
        undo.append((own, part.places_C, _write(own, part.places_C, part.values)))
        got = digest(own)
        if got != part.after:
            for target, places_C, values in reversed(undo):  # tied tensors are written twice
                _write(target, places_C, values)
            _refuse("the new weights are not those that were sent", name, got, part.after, "send the weights whole")


@torch.no_grad()
def copy_into(state: Mapping[str, torch.Tensor], new: Mapping[str, torch.Tensor]) -> None:
    """Write whole weights into those of a model, in place; values of another dtype are rounded to the model's own.

    Args:
        state: A state dict whose tensors are those of the model.
        new: All its names; of tied tensors one is enough.

    Raises:
        PolicyError: Names or shapes differ.
    """
    _check_names(state, new)
    for name, values in new.items():
        if values.shape != state[name].shape:
            _refuse("a tensor has another shape", name, tuple(values.shape), tuple(state[name].shape))
    for name, values in new.items():
        state[name].copy_(values)


def digest(tensor: torch.Tensor) -> str:
    """Return the BLAKE2b digest of a tensor's dtype, shape and bytes, 32 hexadecimal digits."""
    hasher = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    hasher.update(_bits(tensor).cpu().numpy().data)
    return hasher.hexdigest()


def _write(target: torch.Tensor, places_C: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    """Write values, and return those that stood there."""
    if places_C is None:
        old = target.clone()
        target.copy_(values)
        return old
    flat, places_C = target.view(-1), places_C.to(target.device, torch.long)
    old = flat[places_C]
    flat[places_C] = values.to(target.device)
    return old


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values as integers, [N]; a bool is a byte."""
    return tensor.detach().contiguous().reshape(-1).view(_BITS[tensor.element_size()])


def _checksum(tensors: Mapping[str, TensorDelta]) -> str:
    lines = "".join(f"{name} {tensors[name].after}\n" for name in sorted(tensors))
    return hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()


def _check_names(state: Mapping[str, torch.Tensor], given: Mapping[str, object]) -> None:
    """Refuse names that the model does not have, and tensors that nobody gives."""
    expected = f"the {len(state)} names of the model"
    if unknown := sorted(given.keys() - state.keys()):
        _refuse("the model has no such tensors", "weights", unknown, expected)
    reached = {state[name].data_ptr() for name in given}
    if missing := sorted(name for name, tensor in state.items() if tensor.data_ptr() not in reached):
        _refuse("the weights are not whole", "weights", f"none for {missing}", expected)


def _check_part(name: str, own: torch.Tensor, part: TensorDelta) -> None:
    """Refuse a change that does not fit its tensor."""
    shape = own.shape if part.places_C is None else part.places_C.shape
    if (part.values.dtype, part.values.shape) != (own.dtype, shape):
        _refuse("a tensor is of another kind", name, _kind(part.values), f"{own.dtype} of shape {tuple(shape)}")
    if part.places_C is not None and len(part.places_C):
        first, last = (int(place) for place in part.places_C.aminmax())
        if not 0 <= first <= last < own.numel():
            _refuse("a change lies outside its tensor", name, f"{first} to {last}", f"0 to {own.numel() - 1}")


def _kind(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"


def _refuse(what: str, where: str, got: object, expected: object, fix: str | None = None) -> NoReturn:
    raise PolicyError(what, where=where, got=got, expected=expected, fix=fix)
