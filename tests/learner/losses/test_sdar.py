"""SDAR is what its paper derives: vectors D, G, H and O, and a second derivation from the formula alone."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.errors import ConfigError  # noqa: E402
from agentgym_tok.learner.losses import Layout, aggregate, gap, gate, sdar_loss  # noqa: E402

Lay = Callable[..., Layout]
EXACT = {"rtol": 0, "atol": 1e-12}
TEACHER, STUDENT = [-0.5, -2.0, -1.0], [-1.0, -1.0, -1.0]
GATES = [0.9241418199787566, 0.006692850924284856, 0.5]
LOSS, GRADIENT = 0.15179268635503115, [-0.3080472733262522, -0.002230950308094952, -0.16666666666666666]
UNDETACHED = [-0.36646703711384226, 0.008849144143221972, -0.16666666666666666]


def double(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float64)


def run(layout: Layout, loss: Callable[..., Any] = sdar_loss, teacher: Any = None, **options: Any) -> tuple[Any, ...]:
    """Return the loss of a pack, and the gradients of student and teacher."""
    student = double(*STUDENT).requires_grad_()
    teacher = double(*(TEACHER if teacher is None else teacher)).requires_grad_()
    found = aggregate(loss(student, teacher, **options), layout, layout.totals())
    found.backward()
    return found.item(), student.grad, teacher.grad


def test_sdar_is_that_of_vector_d(lay: Lay) -> None:
    gap_T = gap(double(*TEACHER), double(*STUDENT))
    assert gap_T.tolist() == [0.5, -1, 0]
    assert np.allclose(gate(gap_T), GATES, **EXACT)
    assert np.allclose(sdar_loss(double(*STUDENT), double(*TEACHER)), [0.4620709099893783, -0.006692850924284856, 0])
    loss, gradient, teachers = run(lay([[1, 1, 1]]))
    assert np.allclose(loss, LOSS, **EXACT)
    assert np.allclose(gradient, GRADIENT, **EXACT)
    assert teachers is None


def test_a_gate_with_a_gradient_would_be_seen(lay: Lay) -> None:
    def undetached(student: Any, teacher: Any) -> Any:
        difference = teacher.detach() - student
        return torch.sigmoid(5 * difference) * difference

    loss, gradient, _ = run(lay([[1, 1, 1]]), undetached)
    assert np.allclose(loss, LOSS, **EXACT)  # the value does not tell
    assert np.allclose(gradient, UNDETACHED, **EXACT)
    assert not np.allclose(gradient, GRADIENT, atol=1e-3)
    assert gradient[1] > 0  # a token that the teacher dislikes would be pushed down


def test_a_teacher_with_a_gradient_and_one_shifted_by_a_token_would_be_seen(lay: Lay) -> None:
    def attached(student: Any, teacher: Any) -> Any:
        return torch.sigmoid(5 * (teacher - student).detach()) * (teacher - student)

    layout = lay([[1, 1, 1]])
    assert run(layout, attached)[2] is not None
    shifted, gradient, _ = run(layout, teacher=[*TEACHER[1:], TEACHER[0]])
    assert np.allclose(shifted, LOSS, **EXACT)  # here even the mean is blind: every student has -1
    assert not np.allclose(gradient, GRADIENT, atol=1e-3)


def test_gap_and_gate_are_each_detached_by_themselves() -> None:
    student, teacher = double(*STUDENT).requires_grad_(), double(*TEACHER).requires_grad_()
    assert not gap(teacher, student).requires_grad
    for kind in ("gap", "soft_or"):
        assert not gate(teacher - student, kind=kind, entropy_T=student).requires_grad


def test_beta_0_takes_the_teacher_out_of_the_gradient(lay: Lay) -> None:
    loss, gradient, _ = run(lay([[1, 1, 1]]), beta=0.0)
    assert np.allclose(sdar_loss(double(*STUDENT), double(*TEACHER), beta=0.0), [0.25, -0.5, 0], **EXACT)
    assert np.allclose(loss, -0.08333333333333333, **EXACT)
    assert np.allclose(gradient, [-0.16666666666666666] * 3, **EXACT)
    assert torch.equal(gradient, run(lay([[1, 1, 1]]), teacher=[-9.0, 0.0, -3.0], beta=0.0)[1])


def test_what_the_world_said_is_not_distilled(lay: Lay) -> None:
    loss, gradient, _ = run(lay([[1, 1, 0]]))
    assert np.allclose(loss, 0.22768902953254672, **EXACT)
    assert gradient[2] == 0
    gate_T = gate(gap(double(*TEACHER), double(*STUDENT)))[:2]
    assert np.allclose(gate_T.mean(), 0.4654173354515207, **EXACT)
    assert (gate_T > 0.5).double().mean() == 0.5


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (-0.25, 0.22270013882530884),
        (0.06, 0.574442516811659),
        (-0.07, 0.41338242108267),
        (0.46, 0.9088770389851438),
        (-0.43, 0.10433122311900131),
        (-1.7, 0.0002034269780552065),
        (0.28, 0.8021838885585818),
        (0, 0.5),
    ],
)
def test_gates_are_those_of_vector_g(difference: float, expected: float) -> None:
    assert np.allclose(gate(double(difference)), expected, **EXACT)


@pytest.mark.parametrize(
    ("h", "difference", "expected"),
    [
        (0, 0, 0.5),
        (0.5, 0.2, 0.9525741268224334),
        (0.5, -1, 0.5),
        (2, -1, 0.999999694097773),
        (2, 0.5, 0.9994472213630764),
    ],
)
def test_soft_or_gates_are_those_of_vector_h(h: float, difference: float, expected: float) -> None:
    assert np.allclose(gate(double(difference), kind="soft_or", entropy_T=double(h)), expected, **EXACT)


def test_the_entropy_gate_is_that_of_vector_h_and_never_below_a_half() -> None:
    entropy_T = double(math.log(2), 0)
    assert np.allclose(gate(double(-3, -3), kind="entropy", entropy_T=entropy_T), [0.9696969696969697, 0.5], **EXACT)


def test_entropy_gets_no_gradient_through_any_gate() -> None:
    for kind in ("entropy", "soft_or"):
        entropy_T, student = double(0.7).requires_grad_(), double(-1).requires_grad_()
        sdar_loss(student, double(-0.5), kind=kind, entropy_T=entropy_T).sum().backward()
        assert entropy_T.grad is None
        found = gate(double(0.5), kind=kind, entropy_T=entropy_T)
        assert student.grad is not None
        assert np.allclose(student.grad, -found, **EXACT)


def test_a_gate_of_entropy_needs_entropy() -> None:
    with pytest.raises(ConfigError, match="entropy"):
        gate(double(0), kind="soft_or")


def test_the_same_context_has_gap_0_and_a_gate_half_open(lay: Lay) -> None:
    loss, gradient, _ = run(lay([[1, 1, 1]]), teacher=STUDENT)
    assert loss == 0
    assert np.allclose(gradient, -0.5 / 3, **EXACT)  # it still counts, as published; 0 would be another method


def test_a_huge_gap_overflows_nothing() -> None:
    found = gate(torch.tensor([-1e4, 1e4]), beta=10.0)
    assert found.tolist() == [0, 1]


def test_half_precision_is_widened_before_the_difference() -> None:
    student, teacher = torch.tensor([-1.0]).bfloat16(), torch.tensor([-1.0078]).bfloat16()
    assert gap(teacher, student).dtype == torch.float32
    assert sdar_loss(student, teacher).dtype == torch.float32
    # The teacher is scored in float32, and one bfloat16 student would lose most of a small gap.
    assert float(gap(torch.tensor([-1.003]), torch.tensor([-1.0]))) == pytest.approx(-0.003, abs=1e-6)
    assert float(gap(torch.tensor([-1.003]).bfloat16(), student)) == 0


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=8), st.floats(0, 10))
def test_the_gradient_stays_within_the_bound_of_the_paper(differences: list[float], beta: float) -> None:
    student = torch.zeros(len(differences), dtype=torch.float64, requires_grad=True)
    sdar_loss(student, double(*differences), beta=beta).mean().backward()
    assert student.grad is not None
    assert (student.grad <= 0).all()
    assert (student.grad.abs() <= 1 / len(differences) + 1e-15).all()


def test_the_loss_may_be_negative_and_no_lower_than_its_bound() -> None:
    places = torch.linspace(-5, 5, 100_001, dtype=torch.float64)
    values = sdar_loss(torch.zeros_like(places), places)
    assert float(values.min()) == pytest.approx(-0.0556929, abs=1e-7)
    assert float(places[values.argmin()]) == pytest.approx(-0.2557, abs=1e-4)


def second_derivation(p: Any, q: Any, beta: float) -> Any:
    """Return the gradient by hand, without autograd: for a softmax, d log p_v / d logit_u = 1[u = v] - p_u."""
    gradient = np.zeros(2)
    for token in (0, 1):
        opening = 1 / (1 + math.exp(-beta * (math.log(q[token]) - math.log(p[token]))))
        gradient -= p[token] * opening * ((np.arange(2) == token) - p)
    return gradient


def policy_gradient(p: Any, q: Any, beta: float) -> Any:
    """Return the gradient by autograd, of ours: the expectation over both tokens, weighted by their probability."""
    logits = torch.log(double(*p)).requires_grad_()
    logp = torch.log_softmax(logits, -1)
    (logp.detach().exp() * sdar_loss(logp, torch.log(double(*q)), beta=beta)).sum().backward()
    return logits.grad


def test_the_expected_gradient_on_two_tokens_is_that_of_vector_o() -> None:
    p, q = np.array([0.7, 0.3]), np.array([0.4, 0.6])
    gap_T = gap(torch.log(double(*q)), torch.log(double(*p)))
    assert np.allclose(gap_T, [-0.5596157879354225, 0.6931471805599453], **EXACT)
    assert np.allclose(gate(gap_T), [0.057428074701362825, 0.9696969696969697], **EXACT)
    found = policy_gradient(p, q, 5.0)
    assert np.allclose(found, [0.1915764679490774, -0.1915764679490774], **EXACT)
    assert np.allclose(policy_gradient(p, q, 0.0), 0, **EXACT)
    reverse_kl = np.array([0.26308022338402726, -0.26308022338402726])
    assert (np.sign(found.numpy()) == np.sign(reverse_kl)).all()
    assert not np.allclose(found, reverse_kl, atol=1e-2)


@given(st.floats(0.02, 0.98), st.floats(0.02, 0.98), st.floats(0, 10))
def test_a_second_derivation_agrees(p: float, q: float, beta: float) -> None:
    students, teachers = np.array([p, 1 - p]), np.array([q, 1 - q])
    assert np.allclose(
        policy_gradient(students, teachers, beta), second_derivation(students, teachers, beta), atol=1e-10
    )


def test_a_second_sdar_by_autograd_from_the_formula_agrees() -> None:
    # The whole model is one logit; its two tokens are drawn in two states, with and without the skill.
    theta = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    skill = torch.tensor([0.8, -0.1], dtype=torch.float64)

    def logprob(state: int, token: int, *, skilled: bool) -> Any:
        logit = theta[state] + (skill[state] if skilled else 0)
        return -torch.log1p(torch.exp(-logit if token == 1 else logit))

    drawn = [(0, 1), (1, 0), (1, 1)]
    formula = torch.zeros((), dtype=torch.float64)
    for state, token in drawn:
        teacher = logprob(state, token, skilled=True).item()
        student = logprob(state, token, skilled=False)
        opening = 1 / (1 + math.exp(-5 * (teacher - student.item())))
        formula = formula + opening * (teacher - student) / len(drawn)
    (expected,) = torch.autograd.grad(formula, theta)
    students = torch.stack([logprob(*place, skilled=False) for place in drawn])
    teachers = torch.stack([logprob(*place, skilled=True) for place in drawn])
    (found,) = torch.autograd.grad(sdar_loss(students, teachers).mean(), theta)
    assert np.allclose(found, expected, rtol=0, atol=1e-14)
