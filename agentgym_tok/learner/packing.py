"""Packing: sequences as one prefix tree, in which every token that they share stands once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import InvalidIds
from agentgym_tok.tokens import Ids

__all__ = ["Asked", "Pack", "Range", "Segment", "deal", "pack"]

Range: TypeAlias = tuple[int, int]
"""Places of a pack: `[start, end)`."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Hold a sequence, and the places whose next token is asked for.

    Args:
        ids_T: int32 [T]; what stands behind the last of these places is not there, since nothing reads it.
        predictors_K: int64 [K], ascending; where the logits stand that predict the K trained tokens, one before each.
    """

    ids_T: Ids
    predictors_K: NDArray[np.int64]

    @classmethod
    def of(cls, ids_T: Ids, mask_T: NDArray[np.bool_], *, where: str) -> Self:
        """Ask for every token under a mask.

        Args:
            ids_T: int32 [T].
            mask_T: bool [T].
            where: The place that the error names.

        Raises:
            InvalidIds: The first token is one of them, and nothing stands before it.
        """
        predictors_K = np.flatnonzero(mask_T) - 1
        if len(predictors_K) and predictors_K[0] < 0:
            raise InvalidIds("the first token of a sequence is trained", where=where, fix="a context comes before it")
        return cls(ids_T[: predictors_K[-1] + 1] if len(predictors_K) else ids_T[:0], predictors_K)


@dataclass(frozen=True, slots=True)
class Segment:
    """Hold a run of a pack: `[start, end)`, and the parts of the pack that stand before it, from the root down."""

    start: int
    end: int
    before: tuple[Range, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Hold sequences as one: P distinct tokens, each behind all that stand before it in its own sequence.

    Args:
        ids_P: int64 [P].
        depth_P: int64 [P], how many tokens stand before each in its sequence: its position id.
        segments: They cover the pack, in order; a token sees its segment up to itself, and all that stands before that.
        places_K: int64 [K], the place of each predictor, sequence behind sequence in the order given.
    """

    ids_P: NDArray[np.int64]
    depth_P: NDArray[np.int64]
    segments: tuple[Segment, ...]
    places_K: NDArray[np.int64]


def pack(sequences: Sequence[Asked]) -> Pack:
    """Lay sequences into a prefix tree.

    The tree is that of the sorted sequences: in whatever order they come, the pack is the same, but for `places_K`.

    Args:
        sequences: At least one that asks for something.
    """
    places: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(sequences)
    ids: list[Ids] = []
    depths: list[NDArray[np.int64]] = []
    segments: list[Segment] = []
    size, before = 0, -1
    ranges: tuple[Range, ...] = ()
    """Where the sequence before stands."""
    for index in _sorted(sequences):
        ids_T = sequences[index].ids_T
        path, known = (places[before], sequences[before].ids_T) if before >= 0 else (places[index], ids_T[:0])
        shared = _shared(known, ids_T)
        count = len(ids_T) - shared
        places[index] = np.concatenate((path[:shared], np.arange(size, size + count)))
        ranges = _cut(ranges, shared)
        if count:
            if segments and ranges and ranges[-1][1] == size:  # it goes on where the last one ends
                segments[-1] = replace(segments[-1], end=size + count)
                ranges = (*ranges[:-1], (ranges[-1][0], size + count))
            else:
                segments.append(Segment(size, size + count, ranges))
                ranges = (*ranges, (size, size + count))
            ids.append(ids_T[shared:])
            depths.append(np.arange(shared, shared + count))
            size += count
        before = index
    asked = [places[index][one.predictors_K] for index, one in enumerate(sequences)]
    ids_P, depth_P = np.concatenate(ids).astype(np.int64), np.concatenate(depths)
    return Pack(ids_P, depth_P, tuple(segments), np.concatenate(asked))


def deal(sequences: Sequence[Asked], budget: int, *, shared: bool = True) -> list[list[int]]:
    """Deal sequences out into packs of at most so many tokens; those that share a prefix lie together.

    Args:
        sequences: Any number; those that ask for nothing are in no pack.
        budget: Most tokens of a pack. A longer sequence is not cut: it is a pack of its own.
        shared: Tokens that stand once count once; False counts every sequence whole.

    Returns:
        The sequences' indices, pack by pack, in an order that does not depend on the one given.
    """
    dealt: list[list[int]] = []
    size, known = 0, None
    for index in _sorted(sequences):
        ids_T = sequences[index].ids_T
        if not len(ids_T):
            continue
        count = len(ids_T) - (_shared(known, ids_T) if shared and known is not None else 0)
        if not dealt or size + count > budget:
            dealt.append([])
            size, count = 0, len(ids_T)
        dealt[-1].append(index)
        size, known = size + count, ids_T
    return dealt


def _sorted(sequences: Sequence[Asked]) -> list[int]:
    """Return the indices in an order of the ids' bytes: no earlier sequence shares more than the one before."""
    return sorted(range(len(sequences)), key=lambda index: sequences[index].ids_T.tobytes())


def _shared(first: Ids, second: Ids) -> int:
    """Return how many ids two sequences begin with in common."""
    length = min(len(first), len(second))
    differs = np.flatnonzero(first[:length] != second[:length])
    return int(differs[0]) if len(differs) else length


def _cut(ranges: Sequence[Range], length: int) -> tuple[Range, ...]:
    """Return the first so many places."""
    kept: list[Range] = []
    for start, end in ranges:
        if length <= 0:
            break
        kept.append((start, min(end, start + length)))
        length -= end - start
    return tuple(kept)
