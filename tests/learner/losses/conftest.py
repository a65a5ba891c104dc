"""Makers of packs, for all tests of losses; without torch there is nothing to test."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agentgym_tok.learner.losses import Layout


@pytest.fixture(scope="session")
def lay() -> Callable[..., "Layout"]:
    """Return a maker of layouts: `lay([[1, 0, 1], [1]])` is a row of two trained tokens and one of one."""
    torch: Any = pytest.importorskip("torch", reason="the extra torch is not installed")
    from agentgym_tok.learner.losses import Layout

    def layout(masks: Sequence[Sequence[int]], weights: Sequence[float] | None = None) -> Layout:
        flat = torch.tensor([value for mask in masks for value in mask], dtype=torch.bool)
        row_T = torch.tensor([row for row, mask in enumerate(masks) for _ in mask], dtype=torch.int64)
        return Layout(flat, row_T, torch.tensor(weights or [1.0] * len(masks), dtype=torch.float64))

    return layout
