"""Whether this machine's BLAS gives a row the same bits, whatever stands beside it and wherever it lies in memory."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.policies.small.tiles import ROWS, by_tiles, panels

__all__ = ["attention_is_steady", "steady_rows"]

_LENGTHS = (64, 320, 1024)
_SHIFTS = (0, 1, 4, 7)
"""In values of four bytes: what a row's address is beyond a multiple of the widest vector."""


def steady_rows(products: Iterable[tuple[int, int]]) -> int | None:
    """Return how many rows a tile may have.

    Args:
        products: The shapes [N, K] of weights.

    Returns:
        `ROWS`, or 1 where rows are steady alone only; None where not even that holds.
    """
    shapes = {(depth, panels(width, depth)[1]) for width, depth in products}
    return next((rows for rows in (ROWS, 1) if all(_is_steady(*shape, rows) for shape in shapes)), None)


def _is_steady(depth: int, width: int, rows: int) -> bool:
    draw = np.random.default_rng(0)
    panels_PKW = draw.standard_normal((2, depth, width), np.float32)
    x_TK = draw.standard_normal((3 * ROWS, depth), np.float32)
    want_TN = by_tiles(x_TK, panels_PKW, rows)
    for order in (np.arange(3 * ROWS), np.arange(3 * ROWS)[::-1], draw.permutation(3 * ROWS)):
        for shift in _SHIFTS:
            if not np.array_equal(by_tiles(_shifted(x_TK[order], shift), panels_PKW, rows), want_TN[order]):
                return False
    alone = [by_tiles(x_TK[place : place + 1], panels_PKW, rows) for place in range(ROWS)]
    return np.array_equal(np.concatenate(alone), want_TN[:ROWS])


def attention_is_steady(kv_heads: int, rows: int, head_size: int) -> bool:
    """Tell whether one token's attention has the same bits wherever its keys and values lie.

    Args:
        kv_heads: Heads of keys and values.
        rows: Queries that share one of them.
        head_size: Width of a head.
    """
    draw = np.random.default_rng(0)

    def steady(first: NDArray[np.float32], second: NDArray[np.float32]) -> bool:
        want = np.matmul(first, second)
        moved = [np.matmul(_shifted(first, shift), _shifted(second, shift)) for shift in _SHIFTS]
        beside = np.matmul(np.stack([first[:, ::-1], first]), second)[1]
        return all(np.array_equal(got, want) for got in [*moved, beside])

    for length in _LENGTHS:
        queries, weights, keys, values = (
            draw.standard_normal((kv_heads, *sizes), np.float32)
            for sizes in ((rows, head_size), (rows, length), (head_size, length), (length, head_size))
        )
        if not (steady(queries, keys) and steady(weights, values)):
            return False
    return True


def _shifted(array: NDArray[np.float32], shift: int) -> NDArray[np.float32]:
    """Return a copy that begins so many values behind a multiple of 64 bytes."""
    buffer = np.zeros(array.size + 32, np.float32)
    start = -buffer.ctypes.data // 4 % 16 + shift
    copy = buffer[start : start + array.size].reshape(array.shape)
    copy[:] = array
    return copy
