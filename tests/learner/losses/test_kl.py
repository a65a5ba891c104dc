"""KL estimates have the published values and gradients, and each is good for what its docstring says: vector K."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.learner.losses import clipped_loss, kl_advantages, kl_loss  # noqa: E402

EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.mark.parametrize(
    ("x", "estimate", "value", "gradient"),
    [
        (0.5, "k1", 0.5, 1),
        (0.5, "k2", 0.125, 0.5),
        (0.5, "k3", 0.10653065971263342, 0.3934693402873666),
        (-0.5, "k1", -0.5, 1),
        (-0.5, "k2", 0.125, -0.5),
        (-0.5, "k3", 0.1487212707001282, -0.6487212707001282),
        (0.5, "k1+", 0.5, 0.5),
        (0.5, "k3+", 0.10653065971263342, 0.5),
        (-0.5, "k3+", 0.1487212707001282, -0.5),
    ],
)
def test_values_and_gradients_are_those_of_vector_k(x: float, estimate: Any, value: float, gradient: float) -> None:
    logp = torch.tensor([x - 1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    found = kl_loss(logp, reference, estimate)
    found.sum().backward()
    assert logp.grad is not None
    assert np.allclose(found.detach(), value, **EXACT)
    assert np.allclose(logp.grad, gradient, **EXACT)
    assert reference.grad is None


def expected_gradient(per_token: Any) -> Any:
    """Return the mean gradient over the policy's own tokens, by the logits of a policy of three tokens."""
    logits = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64, requires_grad=True)
    logp = torch.log_softmax(logits, -1)
    (logp.detach().exp() * per_token(logp)).sum().backward()
    return logits.grad


def true_gradient(*, forward: bool) -> Any:
    logits = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64, requires_grad=True)
    p, q = torch.log_softmax(logits, -1), reference()
    first, second = (q, p) if forward else (p, q)
    (first.exp() * (first - second)).sum().backward()
    return logits.grad


def reference() -> Any:
    return torch.log_softmax(torch.tensor([1.0, 0.5, -1.0], dtype=torch.float64), -1)


@pytest.mark.parametrize("estimate", ["k2", "k1+", "k3+"])
def test_the_right_ones_have_the_gradient_of_the_reverse_kl(estimate: Any) -> None:
    found = expected_gradient(lambda logp: kl_loss(logp, reference(), estimate))
    assert np.allclose(found, true_gradient(forward=False), **EXACT)


def test_k3_has_that_of_the_forward_kl_and_k1_has_none() -> None:
    found = expected_gradient(lambda logp: kl_loss(logp, reference(), "k3"))
    assert np.allclose(found, true_gradient(forward=True), **EXACT)
    assert np.allclose(expected_gradient(lambda logp: kl_loss(logp, reference(), "k1")), 0, **EXACT)


def test_k1_in_the_reward_is_right() -> None:
    def loss(logp: Any) -> Any:
        return clipped_loss(logp, logp.detach(), kl_advantages(logp, reference(), 0.3))

    live = reference().requires_grad_()
    assert not kl_advantages(live, reference(), 0.3).requires_grad
    assert not kl_advantages(reference(), live, 0.3).requires_grad
    assert np.allclose(expected_gradient(loss), 0.3 * true_gradient(forward=False), **EXACT)


def test_estimates_far_away_stay_finite() -> None:
    logp = torch.tensor([-500.0, 0.0], requires_grad=True)
    found = kl_loss(logp, torch.tensor([0.0, -500.0]))
    found.sum().backward()
    assert logp.grad is not None
    assert torch.cat([found.detach(), logp.grad]).isfinite().all()
