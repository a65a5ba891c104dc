"""Distillation losses are the published ones, and only the right ones are called reverse KL: vectors I, J and O."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.learner.losses import (  # noqa: E402
    log_distribution,
    opsd_full_loss,
    opsd_paper_loss,
    opsd_pg_loss,
    rlsd_advantages,
    skill_sd_loss,
)

EXACT = {"rtol": 0, "atol": 1e-12}
P, Q = [0.7, 0.3], [0.4, 0.6]
REVERSE_KL_GRADIENT = [0.26308022338402726, -0.26308022338402726]


def double(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float64)


def expected_gradient(per_token: Callable[..., Any]) -> Any:
    """Return the mean over the student's own two tokens, by its logits."""
    logits = torch.log(double(*P)).requires_grad_()
    logp = torch.log_softmax(logits, -1)
    (logp.detach().exp() * per_token(logp, torch.log(double(*Q)))).sum().backward()
    return logits.grad


@pytest.mark.parametrize(
    ("divergence", "value"),
    [("reverse_kl", 0.18378689738681217), ("forward_kl", 0.19204199316179815), ("jsd", 0.04620082918151349)],
)
def test_full_divergences_are_those_of_vector_o(divergence: Any, value: float) -> None:
    found = opsd_full_loss(torch.log(double(*P))[None], torch.log(double(*Q))[None], divergence)
    assert np.allclose(found, [value], **EXACT)


def test_the_full_reverse_kl_has_the_gradient_of_vector_o_and_the_teacher_none() -> None:
    logits, teacher = torch.log(double(*P)).requires_grad_(), torch.log(double(*Q)).requires_grad_()
    opsd_full_loss(log_distribution(logits[None]), teacher[None]).sum().backward()
    assert logits.grad is not None
    assert np.allclose(logits.grad, REVERSE_KL_GRADIENT, **EXACT)
    assert teacher.grad is None


@pytest.mark.parametrize("divergence", ["reverse_kl", "forward_kl", "jsd"])
def test_a_divergence_is_0_only_between_equals_and_survives_impossible_ids(divergence: Any) -> None:
    logits = torch.tensor([[0.5, -1.0, 2.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    other = torch.tensor([[1.5, -1.0, 2.0, -math.inf]], dtype=torch.float64)
    same = opsd_full_loss(log_distribution(logits), log_distribution(logits.detach()), divergence)
    apart = opsd_full_loss(log_distribution(logits), log_distribution(other), divergence)
    assert abs(same.item()) < 1e-15
    assert apart.item() > 0.01
    apart.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_the_sampled_reverse_kl_has_the_true_gradient_and_value() -> None:
    assert np.allclose(expected_gradient(opsd_pg_loss), REVERSE_KL_GRADIENT, **EXACT)
    logp, teacher = double(-1).requires_grad_(), double(-3).requires_grad_()
    opsd_pg_loss(logp, teacher).sum().backward()
    assert logp.grad == double(2)  # with a live advantage 3, of the same mean
    assert teacher.grad is None
    value = (double(*P) * opsd_pg_loss(torch.log(double(*P)), torch.log(double(*Q)))).sum()
    assert np.allclose(value, 0.18378689738681217, **EXACT)


def test_tokens_of_an_older_policy_still_give_the_true_gradient() -> None:
    old = torch.log(double(0.5, 0.5))
    logits = torch.log(double(*P)).requires_grad_()
    logp = torch.log_softmax(logits, -1)
    (old.exp() * opsd_pg_loss(logp, torch.log(double(*Q)), old)).sum().backward()
    assert logits.grad is not None
    assert np.allclose(logits.grad, REVERSE_KL_GRADIENT, **EXACT)


def test_the_loss_that_the_paper_writes_for_opsd_teaches_nothing() -> None:
    assert np.allclose(expected_gradient(opsd_paper_loss), 0, **EXACT)
    student = double(-1).requires_grad_()
    found = opsd_paper_loss(student, double(-0.5))
    found.sum().backward()
    assert (found.item(), student.grad) == (-0.5, double(1))


@pytest.mark.parametrize(
    ("student", "teacher", "old", "loss", "gradient"),
    [
        (-1, -0.5, -1, 0.1487212707001282, -0.5),
        (-1, -2, -1, 0.36787944117144233, 1),
        (-1, -2, -1.2, 0.4493289641172216, 1.2214027581601699),
    ],
)
def test_skill_sd_is_that_of_vector_i(student: float, teacher: float, old: float, loss: float, gradient: float) -> None:
    logp = double(student).requires_grad_()
    found = skill_sd_loss(logp, double(teacher), double(old))
    found.sum().backward()
    assert logp.grad is not None
    assert np.allclose(found.item(), loss, **EXACT)
    assert np.allclose(logp.grad, gradient, **EXACT)


def test_skill_sd_has_the_gradient_of_the_reverse_kl_only_because_its_ratio_is_not_detached() -> None:
    found = expected_gradient(lambda logp, teacher: skill_sd_loss(logp, teacher, logp.detach()))
    assert np.allclose(found, REVERSE_KL_GRADIENT, **EXACT)

    def detached(logp: Any, teacher: Any) -> Any:
        difference = logp - teacher
        return torch.exp(-difference) - 1 + difference

    assert not np.allclose(expected_gradient(detached), REVERSE_KL_GRADIENT, atol=1e-3)


def test_the_ratio_of_skill_sd_ends_at_10() -> None:
    assert np.allclose(skill_sd_loss(double(-1), double(-2), double(-9)), 10 * math.exp(-1), **EXACT)


def test_skill_sd_far_away_stays_finite() -> None:
    logp = torch.tensor([-300.0, 300.0], requires_grad=True)
    found = skill_sd_loss(logp, torch.zeros(2), torch.zeros(2))
    found.sum().backward()
    assert logp.grad is not None
    assert torch.cat([found.detach(), logp.grad]).isfinite().all()


@pytest.mark.parametrize(
    ("advantage", "difference", "expected"),
    [
        (1, 0.5, 1.1),
        (1, -1, 0.9),
        (1, 0.1, 1.0525854590378239),
        (-1, 0.5, -0.9),
        (-1, -1, -1.1),
        (-1, 0.1, -0.9524187090179798),
    ],
)
def test_rlsd_is_that_of_vector_j(advantage: float, difference: float, expected: float) -> None:
    found = rlsd_advantages(double(advantage), double(difference - 1).requires_grad_(), double(-1))
    assert np.allclose(found, expected, **EXACT)
    assert not found.requires_grad


def test_rlsd_at_strength_0_is_grpo_and_never_turns_an_advantage_round() -> None:
    advantage = double(2, -3, 0)
    found = rlsd_advantages(advantage, double(-9, 5, 1), double(-1, -1, -1), strength=0.0)
    assert torch.equal(found, advantage)
    assert torch.equal(
        rlsd_advantages(advantage, double(-9, 5, 1), double(-1, -1, -1), strength=1.0).sign(), double(1, -1, 0)
    )
