"""Linear layers whose every row has the same bits, whatever stands beside it.

A BLAS adds up in an order that depends on the shape of the product. So every product here has one shape: a tile of
eight rows, times a panel of the weights. A panel is so narrow that OpenBLAS computes it in one thread (it takes more
from 2^18 multiplications on), so that the number of threads changes nothing either.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROWS", "Linear", "by_tiles", "panels"]

ROWS = 8
"""Rows of a tile."""

_ONE_THREAD = 2**18
_LANES = 16
"""Widths of panels are multiples of this many columns, so that all are computed by the same loop of a kernel."""


class Linear:
    """Multiply rows by weights, and add a bias.

    Args:
        weight_NK: float32 [N, K], as torch has it.
        bias_N: float32 [N].
        rows: Rows of a tile.
    """

    def __init__(
        self, weight_NK: NDArray[np.float32], bias_N: NDArray[np.float32] | None = None, *, rows: int = ROWS
    ) -> None:
        self._width, depth = weight_NK.shape
        self._rows = rows
        self._bias_N = bias_N
        count, panel = panels(self._width, depth)
        padded = np.zeros((count * panel, depth), np.float32)
        padded[: self._width] = weight_NK
        self._panels_PKW = np.ascontiguousarray(padded.reshape(count, panel, depth).swapaxes(1, 2))

    def __call__(self, x_TK: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return float32 [T, N], which may be a view; T need not fill the tiles."""
        y_TN = by_tiles(x_TK, self._panels_PKW, self._rows)[:, : self._width]
        if self._bias_N is not None:
            y_TN += self._bias_N
        return y_TN


def panels(width: int, depth: int) -> tuple[int, int]:
    """Return into how many panels weights [width, depth] are cut, and how wide each is."""
    widest = max(_LANES, _ONE_THREAD // (ROWS * depth) // _LANES * _LANES)
    count = -(-width // widest)
    return count, -(-width // (count * _LANES)) * _LANES


def by_tiles(x_TK: NDArray[np.float32], panels_PKW: NDArray[np.float32], rows: int) -> NDArray[np.float32]:
    """Multiply tiles of rows by panels; return float32 [T, P * W], which may be a view."""
    count, depth = x_TK.shape
    tiles = -(-count // rows)
    if tiles * rows > count:
        padded = np.zeros((tiles * rows, depth), np.float32)
        padded[:count] = x_TK
        x_TK = padded
    wide, _, width = panels_PKW.shape
    out = np.empty((tiles, rows, wide, width), np.float32)
    np.matmul(x_TK.reshape(tiles, 1, rows, depth), panels_PKW, out=out.swapaxes(1, 2))
    return out.reshape(tiles * rows, wide * width)[:count]
