"""Log-probabilities and entropy are those of the distribution that the token was drawn from."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.learner.losses import entropy, log_distribution, pick  # noqa: E402


def test_log_probabilities_are_taken_at_the_temperature_of_each_token() -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, -1.0]], dtype=torch.float64)
    found = pick(log_distribution(logits, torch.tensor([0.5, 2.0])), torch.tensor([2, 1], dtype=torch.int32))
    expected = [6 - math.log(1 + math.exp(2) + math.exp(6)), -math.log(math.e + 1 + math.exp(-0.5))]
    assert np.allclose(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(log_distribution(logits), torch.log_softmax(logits, -1))


def test_half_precision_is_widened_before_it_is_normalised() -> None:
    logits = torch.tensor([[8.0, 7.9375, -3.0]], dtype=torch.bfloat16)
    found = log_distribution(logits)
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.log_softmax(logits.float(), -1))
    assert not torch.allclose(found, torch.log_softmax(logits, -1).float(), atol=1e-4)


def test_entropy_is_in_nats_and_an_impossible_id_adds_nothing() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf, -math.inf], [0.0] * 4], dtype=torch.float64, requires_grad=True)
    found = entropy(log_distribution(logits))
    assert np.allclose(found.detach(), [math.log(2), math.log(4)], rtol=0, atol=1e-12)
    found.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
