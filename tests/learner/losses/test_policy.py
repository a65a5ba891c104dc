"""Policy losses are the published ones: vectors C and L."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.errors import ConfigError  # noqa: E402
from agentgym_tok.learner.losses import Layout, cispo_loss, clipped_loss, gspo_loss, sequence_ratios  # noqa: E402

Lay = Callable[..., Layout]
EXACT = {"rtol": 0, "atol": 1e-12}


def double(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float64)


def run(loss: Callable[..., Any], advantage: float, ratio: float, **options: float) -> tuple[float, float]:
    """Return a token's loss, and its gradient for the log-probability."""
    logp = double(math.log(ratio)).requires_grad_()
    found = loss(logp, double(0), double(advantage), **options)
    found.sum().backward()
    assert logp.grad is not None
    return found.item(), logp.grad.item()


@pytest.mark.parametrize(
    ("advantage", "ratio", "options", "expected"),
    [
        (1, 1.5, {"dual": 3.0}, -1.2),
        (1, 0.5, {"dual": 3.0}, -0.5),
        (-1, 1.5, {"dual": 3.0}, 1.5),
        (-1, 0.5, {"dual": 3.0}, 0.8),
        (-1, 4, {"dual": 3.0}, 3.0),
        (-1, 4, {}, 4.0),
        (1, 4, {"dual": 3.0}, -1.2),
        (1, 1.5, {"high": 0.28}, -1.28),
        (1, 1.25, {"high": 0.28}, -1.25),
        (1, 1.25, {}, -1.2),
    ],
)
def test_clipping_is_that_of_vector_c(advantage: float, ratio: float, options: dict, expected: float) -> None:
    assert np.allclose(run(clipped_loss, advantage, ratio, **options)[0], expected, **EXACT)


def test_a_clipped_token_has_no_gradient_and_another_has_that_of_the_policy_gradient() -> None:
    assert run(clipped_loss, 1, 1.5)[1] == 0
    assert run(clipped_loss, -1, 0.5)[1] == 0
    assert run(clipped_loss, -1, 4, dual=3.0)[1] == 0
    assert run(clipped_loss, 2, 1)[1] == -2
    assert np.allclose(run(clipped_loss, -1, 1.5)[1], 1.5, **EXACT)


@pytest.mark.parametrize("loss", [clipped_loss, cispo_loss])
def test_the_old_policy_gets_no_gradient(loss: Any) -> None:
    old = double(-1.1).requires_grad_()
    loss(double(-1.0).requires_grad_(), old, double(1)).sum().backward()
    assert old.grad is None


def test_a_ratio_beyond_all_bounds_gives_no_nan() -> None:
    for loss in (clipped_loss, cispo_loss):
        logp = torch.tensor([0.0, 0.0], requires_grad=True)
        found = loss(logp, torch.tensor([-200.0, 200.0]), torch.tensor([1.0, 1.0]))
        found.sum().backward()
        assert logp.grad is not None
        assert torch.cat([found.detach(), logp.grad]).isfinite().all()


def test_the_dual_clip_lies_above_1() -> None:
    with pytest.raises(ConfigError, match="above 1"):
        clipped_loss(double(0), double(0), double(1), dual=0.5)


def test_the_sequence_ratio_is_that_of_vector_l(lay: Lay) -> None:
    layout = lay([[1, 1, 0, 1]])
    logp, old = double(-0.9, -1.7, 5.0, -1.1), double(-1, -2, 0, -1)
    assert np.allclose(sequence_ratios(logp, old, layout), [1.1051709180756477], **EXACT)


def test_gspo_has_the_gradient_of_the_sequence_form(lay: Lay) -> None:
    layout = lay([[1, 1, 0, 1], [1, 0]])
    logp = double(-0.9, -1.7, 5.0, -1.1, -2.0, 1.0).requires_grad_()
    old, advantage = double(-1, -2, 0, -1, -2.1, 0), double(2, 2, 0, 2, -1, 0)
    options = {"low": 0.2, "high": 0.2}
    per_token = gspo_loss(logp, old, advantage, layout, **options)
    (layout.sums(per_token) / layout.row_tokens()).mean().backward()
    again = logp.detach().clone().requires_grad_()
    ratio_R = sequence_ratios(again, old, layout)
    advantage_R = double(2, -1)
    torch.maximum(-advantage_R * ratio_R, -advantage_R * ratio_R.clamp(0.8, 1.2)).mean().backward()
    assert logp.grad is not None
    assert again.grad is not None
    assert np.allclose(logp.grad, again.grad, **EXACT)
    assert logp.grad[[2, 5]].tolist() == [0, 0]


def test_gspo_clips_whole_sequences(lay: Lay) -> None:
    layout = lay([[1, 1]])
    logp = double(-0.5, -0.9).requires_grad_()
    gspo_loss(logp, double(-1, -1), double(1, 1), layout, low=0.2, high=0.2).sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [0, 0]  # exp(0.3) > 1.2, although the second token alone lies inside


def test_cispo_weighs_and_never_cuts() -> None:
    assert np.allclose(run(cispo_loss, 1, 10)[1], -5, **EXACT)
    assert np.allclose(run(cispo_loss, -1, 10, high=0.28)[1], 1.28, **EXACT)
    assert np.allclose(run(cispo_loss, 1, 0.01)[1], -0.01, **EXACT)
    assert np.allclose(run(cispo_loss, 1, 0.01, low=0.2)[1], -0.8, **EXACT)
