"""The Gymnasium space of token ids."""

import multiprocessing
from collections.abc import Iterable, Sequence
from ctypes import c_int32
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from numpy.typing import NDArray

from agentgym_tok.errors import ConfigError
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["TokenSpace"]

PAD = -1
"""Fills the places after the last id where a fixed shape is needed; no id is negative."""


class TokenSpace(Space[Ids]):
    """Hold 1-D int32 arrays of token ids, of any length up to a bound.

    Args:
        vocab_size: Every id is below it.
        max_length: Most ids.
        min_length: Fewest ids.
        seed: Seed of `sample`.

    Raises:
        ConfigError: A bound makes no sense.
    """

    def __init__(
        self, vocab_size: int, max_length: int, min_length: int = 0, seed: int | np.random.Generator | None = None
    ) -> None:
        if not 1 <= vocab_size <= 2**31 or not 0 <= min_length <= max_length:
            got = f"vocab_size={vocab_size}, min_length={min_length}, max_length={max_length}"
            raise ConfigError(
                "impossible token space", where="TokenSpace", got=got, expected="1 <= V <= 2**31, 0 <= min <= max"
            )
        self.vocab_size, self.max_length, self.min_length = int(vocab_size), int(max_length), int(min_length)
        super().__init__(shape=None, dtype=np.int32, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """True: padded with -1 to `max_length`."""
        return True

    def sample(self, mask: Any = None, probability: Any = None) -> Ids:
        """Draw random ids of a random length up to 32 beyond the shortest (long random contexts help nobody).

        Args:
            mask: Not supported; None.
            probability: Not supported; None.
        """
        if mask is not None or probability is not None:
            raise ConfigError(
                "TokenSpace draws without a mask", where="TokenSpace.sample", got="a mask", expected="None"
            )
        longest = min(self.max_length, self.min_length + 32)
        length = int(self.np_random.integers(self.min_length, longest + 1))
        ids_T: NDArray[np.int32] = self.np_random.integers(self.vocab_size, size=length, dtype=np.int32)
        ids_T.flags.writeable = False
        return ids_T

    def contains(self, x: Any) -> bool:
        """Tell whether x is an int32 array [T] within the bounds."""
        return bool(
            isinstance(x, np.ndarray)
            and x.dtype == np.int32
            and x.ndim == 1
            and self.min_length <= len(x) <= self.max_length
            and (len(x) == 0 or (x.min() >= 0 and x.max() < self.vocab_size))
        )

    def to_jsonable(self, sample_n: Iterable[Ids]) -> list[list[int]]:
        """Return the ids as lists."""
        return [ids_T.tolist() for ids_T in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[Ids]:
        """Read the ids back from lists."""
        return [as_ids(ids, vocab_size=self.vocab_size) for ids in sample_n]

    def __repr__(self) -> str:
        return f"TokenSpace(vocab_size={self.vocab_size}, max_length={self.max_length}, min_length={self.min_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSpace) and self._bounds == other._bounds

    def __hash__(self) -> int:
        return hash(self._bounds)

    @property
    def _bounds(self) -> tuple[int, int, int]:
        return self.vocab_size, self.max_length, self.min_length

    def pad(self, ids_T: Ids) -> NDArray[np.int32]:
        """Return int32 [max_length] with -1 after the last id."""
        padded = np.full(self.max_length, PAD, dtype=np.int32)
        padded[: len(ids_T)] = ids_T
        return padded


# Gymnasium's functions on spaces are open by single dispatch. Shared memory of one sub-environment is a row of
# 1 + max_length numbers: how many ids follow, then the ids.


@create_shared_memory.register(TokenSpace)
def _create(space: TokenSpace, n: int = 1, ctx: Any = multiprocessing) -> Any:
    context: BaseContext = ctx
    return context.Array(c_int32, n * (1 + space.max_length))


@write_to_shared_memory.register(TokenSpace)
def _write(space: TokenSpace, index: int, value: Ids, shared_memory: Any) -> None:
    row = _rows(space, shared_memory)[index]
    row[0] = len(value)
    row[1 : 1 + len(value)] = value


@read_from_shared_memory.register(TokenSpace)
def _read(space: TokenSpace, shared_memory: Any, n: int = 1) -> "_LiveTokens":
    return _LiveTokens(_rows(space, shared_memory)[:n])


class _LiveTokens(Sequence[Ids]):
    """Show what stands in the shared memory now: Gymnasium reads it once and copies what it got after each step."""

    def __init__(self, rows: NDArray[np.int32]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        row = self._rows[index]
        return row[1 : 1 + row[0]].copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[Ids, ...]:
        return tuple(self)


def _rows(space: TokenSpace, shared_memory: Any) -> NDArray[np.int32]:
    return np.frombuffer(shared_memory.get_obj(), dtype=np.int32).reshape(-1, 1 + space.max_length)


@flatdim.register(TokenSpace)
def _flatdim(space: TokenSpace) -> int:
    return space.max_length


@flatten_space.register(TokenSpace)
def _flatten_space(space: TokenSpace) -> Box:
    return Box(low=PAD, high=space.vocab_size - 1, shape=(space.max_length,), dtype=np.int32)


@flatten.register(TokenSpace)
def _flatten(  # type: ignore[misc]  # the base case is typed for a Space of any T
    space: TokenSpace, x: Ids
) -> NDArray[np.int32]:
    return space.pad(x)


@unflatten.register(TokenSpace)
def _unflatten(  # type: ignore[misc]
    space: TokenSpace, x: NDArray[np.int32]
) -> Ids:
    del space
    ids_T: NDArray[np.int32] = x[x != PAD].astype(np.int32)
    return ids_T
