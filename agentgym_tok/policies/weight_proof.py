"""Proof that a vLLM holds the weights that it was given, by the digests that its workers compute of theirs."""

import hashlib
from collections.abc import Iterable, Mapping

import torch

from agentgym_tok.errors import PolicyError

__all__ = ["WeightProof"]

_DTYPES = (None, torch.float32, torch.bfloat16, torch.float16)
"""What an engine may hold the weights in; None is the dtype of the files."""


class WeightProof:
    """Know which tensors an engine shows as the files have them, and compare those.

    Layers that vLLM joins have other names there, and those that a backend packs have other bytes; norms have neither.

    Args:
        own: The weights that the engine holds, by name, as its files have them.
        checksums: What its workers say (`compute_weight_checksums`): SHA-256 by name, behind the worker's place.
        where: Names the engine in errors.

    Raises:
        PolicyError: The engine holds other weights.
    """

    def __init__(self, own: Mapping[str, torch.Tensor], checksums: Iterable[Mapping[str, str]], where: str) -> None:
        self._where = where
        found = _by_name(checksums)
        both = [name for name in own if name in found]
        # Workers that hold parts of one tensor say different things of it.
        norms = [name for name in both if own[name].dim() == 1 and len(found[name]) == 1]
        for dtype in _DTYPES:
            if norms and all(found[name] == {_sha256(own[name], dtype)} for name in norms):
                self._dtype = dtype
                self._names = [name for name in both if found[name] == {_sha256(own[name], dtype)}]
                return
        raise PolicyError(
            "the engine holds other weights than its folder",
            where=where,
            got=f"{len(norms)} tensors of one dimension under the same name, not all of them equal",
            expected="those of the files, or the same rounded to another dtype",
            fix="start the engine again, so that its folder and its weights are the same",
        )

    def expect(self, own: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Return the digests that the engine shows once it holds these weights."""
        return {name: _sha256(own[name], self._dtype) for name in self._names}

    def check(self, expected: Mapping[str, str], checksums: Iterable[Mapping[str, str]]) -> None:
        """Compare what was expected with what the workers say now.

        Raises:
            PolicyError: The engine holds other weights.
        """
        found = _by_name(checksums)
        wrong = [name for name, digest in expected.items() if found.get(name) != {digest}]
        if wrong:
            raise PolicyError(
                "the engine does not hold the weights that it was given",
                where=self._where,
                got=f"others in {len(wrong)} of {len(expected)} tensors, such as {wrong[0]}",
            )


def _by_name(checksums: Iterable[Mapping[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for worker in checksums:
        for name, digest in worker.items():
            found.setdefault(name.rpartition(":")[2], set()).add(digest)
    return found


def _sha256(tensor: torch.Tensor, dtype: torch.dtype | None) -> str:
    values = tensor.contiguous() if dtype is None else tensor.to(dtype).contiguous()
    return hashlib.sha256(values.reshape(-1).view(torch.uint8).numpy().data).hexdigest()
