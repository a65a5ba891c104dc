"""Whether a machine's BLAS is steady is found out, and what it cannot do is not promised."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.policies.small import steadiness, tiles
from agentgym_tok.policies.small.policy import NumpyPolicy
from agentgym_tok.policies.small.steadiness import attention_is_steady, steady_rows
from agentgym_tok.policies.small.tiles import ROWS, Linear, panels
from agentgym_tok.tokens import as_ids

CHAT = ChatFormat.builtin()


def shaky(module: Any, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    """Let a module multiply by a BLAS that spoils results."""

    def matmul(first: np.ndarray, second: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        product = np.matmul(first, second)
        spoil(first, product)
        if out is None:
            return product
        out[:] = product
        return out

    monkeypatch.setattr(module, "np", SimpleNamespace(**{**vars(np), "matmul": matmul}))


def by_neighbours(first: np.ndarray, product: np.ndarray) -> None:
    product += np.float32(1e-5) * first.sum(axis=(-1, -2), keepdims=True)  # a row that is alone is its own neighbour


def by_place(first: np.ndarray, product: np.ndarray) -> None:
    product *= 1 + np.float32(1e-6) * np.arange(product.shape[-2], dtype=np.float32)[:, None]


def by_address(first: np.ndarray, product: np.ndarray) -> None:
    product += np.float32(first.ctypes.data % 64)


def by_tile(first: np.ndarray, product: np.ndarray) -> None:
    product += np.arange(len(product), dtype=np.float32).reshape(-1, *[1] * (product.ndim - 1))


def test_this_machine_is_steady() -> None:
    assert steady_rows({(256, 128), (128, 128), (768, 128), (128, 384), (4096, 128), (77, 20)}) == ROWS
    assert attention_is_steady(2, 2, 32)


@pytest.mark.parametrize(("spoil", "rows"), [(by_neighbours, 1), (by_place, 1), (by_address, None), (by_tile, None)])
def test_what_is_not_steady_is_found(monkeypatch: pytest.MonkeyPatch, spoil: Any, rows: int | None) -> None:
    shaky(tiles, monkeypatch, spoil)
    assert steady_rows({(48, 32), (32, 32)}) == rows


def test_attention_that_is_not_steady_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shaky(steadiness, monkeypatch, by_address)
    assert not attention_is_steady(2, 2, 32)


def test_a_policy_goes_row_by_row_where_tiles_are_not_steady(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steady = NumpyPolicy(folder, CHAT)
    shaky(tiles, monkeypatch, by_place)
    slow = NumpyPolicy(folder, CHAT)
    assert (steady._rows, slow._rows) == (ROWS, 1)
    assert slow.deterministic
    asked = [Request(as_ids(range(9 + seed)), Sampling(max_tokens=5), seed=seed) for seed in range(9)]
    for one, other in zip(steady.generate(asked), slow.generate(asked), strict=True):
        assert isinstance(one, Completion)
        assert isinstance(other, Completion)
        np.testing.assert_allclose(one.logprobs_T, other.logprobs_T, atol=1e-4)  # type: ignore[arg-type]
    shaky(tiles, monkeypatch, by_address)
    assert not NumpyPolicy(folder, CHAT).deterministic


@pytest.mark.parametrize(("width", "depth"), [(4096, 128), (77, 20), (16, 5000), (768, 128), (1, 1), (256, 128)])
def test_panels_are_narrow_and_hold_all_columns(width: int, depth: int) -> None:
    count, panel = panels(width, depth)
    assert (count - 1) * panel < width <= count * panel
    assert panel % 16 == 0
    assert ROWS * depth * panel <= max(2**18, ROWS * depth * 16)
    draw = np.random.default_rng(0)
    weight_NK, bias_N = (draw.standard_normal(size, np.float32) for size in ((width, depth), (width,)))
    x_TK = draw.standard_normal((11, depth), np.float32)
    for rows in (1, ROWS):
        got_TN = Linear(weight_NK, bias_N, rows=rows)(x_TK)
        np.testing.assert_allclose(got_TN, x_TK @ weight_NK.T + bias_N, rtol=1e-4, atol=1e-3)
