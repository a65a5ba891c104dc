"""Keys and values of conversations: what is common is taken over, and nothing else."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.policies.small.keys import BLOCK, Kept, common
from agentgym_tok.policies.small.shape import Shape, read_shape

SHORT = st.lists(st.integers(0, 1), max_size=6)


def filled(shape: Shape, length: int, value: float) -> Kept:
    kept = Kept(shape)
    kept.expect(range(length))
    kept.keys[:], kept.values[:] = value, value
    kept.length = length
    return kept


def test_only_what_is_common_is_taken_over(folder: Path) -> None:
    shape = read_shape(folder)
    other = filled(shape, 3 * BLOCK, np.nan)
    for own in (0, 5, BLOCK, BLOCK + 5):
        for length in (own + 1, BLOCK + 7, 2 * BLOCK):
            kept = filled(shape, own, 1)
            kept.begin_like(other, length)
            assert kept.ids.tolist() == [*range(length)]
            blocks = -(-length // BLOCK)
            keys = kept.keys[:, :, :blocks].swapaxes(-1, -2).reshape(-1, blocks * BLOCK, shape.head_size)
            values = kept.values[:, :, :blocks].reshape(-1, blocks * BLOCK, shape.head_size)
            for part in (keys, values):
                assert np.isnan(part[:, own:length]).all()
                assert np.isfinite(part[:, length:]).all()


def test_what_is_computed_survives_growth(folder: Path) -> None:
    kept = filled(read_shape(folder), 5, 3)
    for length in (BLOCK - 1, 2, 3 * BLOCK):
        kept.expect(range(5, 5 + length))
        assert kept.end == 5 + length
        assert kept.ids.tolist() == [*range(5)]
        assert (kept.keys[:, :, 0, :, :5] == 3).all()
        assert (kept.values[:, :, 0, :5] == 3).all()
        assert kept.keys.shape[2] * BLOCK >= kept.end


@given(first=SHORT, second=SHORT)
def test_what_is_common_is_counted(first: list[int], second: list[int]) -> None:
    length = common(np.array(first, np.int32), np.array(second, np.int32))
    assert first[:length] == second[:length]
    assert length == min(len(first), len(second)) or first[length] != second[length]
