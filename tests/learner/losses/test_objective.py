"""Objectives add up as published, and no cut of the batch, no order and no padding changes them: vectors F and Q."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.errors import ConfigError, InvalidLogprobs  # noqa: E402
from agentgym_tok.learner import group_advantages  # noqa: E402
from agentgym_tok.learner.losses import (  # noqa: E402
    OBJECTIVES,
    Importance,
    Layout,
    LossConfig,
    Scores,
    Totals,
    merge_figures,
    total_loss,
)

Lay = Callable[..., Layout]
EXACT = {"rtol": 0, "atol": 1e-12}
LOGPROBS = ("old_T", "rollout_T", "reference_T", "teacher_T")

SDAR = LossConfig(distillation="sdar", distillation_coefficient=0.01)
F1 = [-0.1790867998469373, -0.17679317742430112, -0.1780264452969904, 0.1749487988504154]
F2 = [-0.1193911998979582, -0.11786211828286741, -0.11868429686466027, 0.3498975977008308]


def double(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def vector_f(lay: Lay) -> Scores:
    """Return two rows of three tokens and of one, with ratio 1, one of which won."""
    student = double(-1, -1, -1, -1)
    won, lost = group_advantages([1, 0], [0, 0])
    layout = lay([[1, 1, 1], [1]])
    advantage_T = double(won, won, won, lost)
    return Scores(layout, layout.totals(), student, student, advantage_T, teacher_T=double(-0.5, -2, -1, -0.8))


def run(scores: Scores, config: LossConfig) -> tuple[float, Any, dict[str, Any]]:
    """Return the loss, its gradient by the log-probabilities, and the figures."""
    logprobs_T = scores.logprobs_T.detach().clone().requires_grad_()
    loss, figures = total_loss(replace(scores, logprobs_T=logprobs_T), config)
    loss.backward()
    assert logprobs_T.grad is not None
    return loss.item(), logprobs_T.grad, figures


def cut(scores: Scores, rows: list[int], *, pad: int = 0) -> Scores:
    """Return some rows of a batch, in this order, with `pad` tokens behind each that nobody trains."""
    places: list[int] = []
    new_row: list[int] = []
    real: list[bool] = []
    for new, row in enumerate(rows):
        own = torch.where(scores.layout.row_T == row)[0].tolist()
        places += [*own, *own[-1:] * pad]
        new_row += [new] * (len(own) + pad)
        real += [True] * len(own) + [False] * pad
    index, is_real = torch.tensor(places), torch.tensor(real)
    layout = Layout(
        scores.layout.mask_T[index] & is_real, torch.tensor(new_row), scores.layout.weight_R[torch.tensor(rows)]
    )
    named = ("logprobs_T", "advantage_T", "entropy_T", "divergence_T", *LOGPROBS)
    found = {name: value for name in named if (value := getattr(scores, name)) is not None}
    return replace(
        scores,
        layout=layout,
        **{name: torch.where(is_real, value[index], torch.nan) for name, value in found.items()},
    )


@pytest.mark.parametrize(
    ("aggregation", "policy", "total", "gradient"),
    [
        ("token-mean", -0.35355289059398076, -0.352048916157003, F1),
        ("seq-mean-token-mean", 0, 0.0014900220104051606, F2),
    ],
)
def test_grpo_and_sdar_add_up_to_vector_f(
    aggregation: Any, policy: float, total: float, gradient: list[float], vector_f: Scores
) -> None:
    loss, found, figures = run(vector_f, SDAR.model_copy(update={"aggregation": aggregation}))
    assert np.allclose(figures["policy/loss"], policy, **EXACT)
    assert np.allclose(loss, total, **EXACT)
    assert np.allclose(found, gradient, **EXACT)


def test_micro_batches_with_denominators_of_their_own_would_be_seen(vector_f: Scores) -> None:
    halves = [cut(vector_f, [0]), cut(vector_f, [1])]
    losses, gradients, _ = zip(*(run(half, SDAR) for half in halves), strict=True)
    assert np.allclose(sum(losses), -0.352048916157003, **EXACT)
    assert np.allclose(torch.cat(gradients), F1, **EXACT)
    local = [run(replace(half, totals=half.layout.totals()), SDAR) for half in halves]
    assert np.allclose(np.mean([loss for loss, _, _ in local]), 0.0014900220104051606, **EXACT)
    assert np.allclose(torch.cat([gradient for _, gradient, _ in local]) / 2, F2, **EXACT)


def test_lambda_0_is_grpo_to_the_last_bit(vector_f: Scores) -> None:
    plain, none = LossConfig(), SDAR.model_copy(update={"distillation_coefficient": 0.0})
    one, other = run(vector_f, plain), run(replace(vector_f, teacher_T=None), none)
    assert one[0] == other[0]
    assert torch.equal(one[1], other[1])


def test_the_figures_of_sdar_are_there(vector_f: Scores) -> None:
    figures = run(vector_f, SDAR)[2]
    gates = double(0.9241418199787566, 0.006692850924284856, 0.5, 0.7310585786300049)
    assert np.allclose(figures["sdar/gate_mean"], gates.mean(), **EXACT)
    assert np.allclose(figures["sdar/gate_active"], 0.5, **EXACT)
    assert np.allclose(figures["teacher/gap_mean"], -0.075, **EXACT)
    assert np.allclose(figures["distillation/loss"], 0.01 * 0.1503974436977736, **EXACT)
    assert figures["policy/ratio_gap_max"] == 0  # the first update starts at ratio 1
    late = run(replace(vector_f, old_T=vector_f.old_T - 0.3), SDAR)[2]
    assert np.allclose(late["policy/ratio_gap_max"], np.exp(0.3) - 1, **EXACT)
    assert np.allclose(late["policy/clip_share"], 0.75, **EXACT)


def test_equal_returns_still_distil(vector_f: Scores) -> None:
    still = replace(vector_f, advantage_T=torch.zeros(4, dtype=torch.float64))
    assert run(still, LossConfig())[1].tolist() == [0, 0, 0, 0]
    assert run(still, SDAR)[1].abs().min() > 0


def test_importance_weighs_the_policy_alone(vector_f: Scores) -> None:
    scores = replace(vector_f, rollout_T=vector_f.old_T - np.log(1.5))
    weighed = SDAR.model_copy(update={"importance": (Importance(high=2.0),)})
    plain, heavy = run(scores, SDAR)[2], run(scores, weighed)[2]
    assert np.allclose(heavy["policy/loss"], 1.5 * plain["policy/loss"], **EXACT)
    assert torch.equal(heavy["distillation/loss"], plain["distillation/loss"])
    assert np.allclose(heavy["importance/token_truncate_mean"], 1.5, **EXACT)
    dropped = SDAR.model_copy(update={"importance": (Importance(), Importance(rule="geometric_mask", high=1.2))})
    assert run(scores, dropped)[2]["policy/loss"] == 0


@pytest.mark.parametrize("bad", [-np.inf, np.nan])
@pytest.mark.parametrize("name", ["logprobs_T", *LOGPROBS])
def test_scores_that_are_no_numbers_are_refused_where_they_count_only(name: str, bad: float, vector_f: Scores) -> None:
    full = replace(vector_f, reference_T=vector_f.old_T, rollout_T=vector_f.old_T)
    config = SDAR.model_copy(update={"kl_coefficient": 0.01, "importance": (Importance(),)})
    mask_T = torch.tensor([True, True, False, True])
    masked = replace(full, layout=replace(full.layout, mask_T=mask_T))
    poisoned_T = getattr(full, name).clone()
    poisoned_T[2] = bad
    loss, gradient, _ = run(replace(masked, **{name: poisoned_T}), config)
    expected = run(masked, config)
    assert loss == expected[0]
    assert torch.equal(gradient, expected[1])
    with pytest.raises(InvalidLogprobs, match=name):
        run(replace(full, **{name: poisoned_T}), config)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("sdar", "reference_T"), ("rlsd", "teacher_T"), ("opsd_full", "divergence_T"), ("opd", "teacher_T")],
)
def test_a_score_that_is_missing_is_named(name: str, missing: str, vector_f: Scores) -> None:
    with pytest.raises(ConfigError, match=missing):
        run(replace(vector_f, teacher_T=None, entropy_T=vector_f.old_T), OBJECTIVES[name])


def test_half_precision_is_widened(vector_f: Scores) -> None:
    halves = {name: getattr(vector_f, name).bfloat16() for name in ("logprobs_T", "old_T", "teacher_T")}
    for config in (SDAR, LossConfig()):
        loss, _ = total_loss(replace(vector_f, **halves), config)
        assert loss.dtype == torch.float32


@pytest.fixture(scope="module")
def batch() -> Scores:
    """Return a batch of six rows in which every score is there, and the ratios lie on both sides of all clips."""
    generator = torch.Generator().manual_seed(7)
    lengths = [5, 1, 4, 3, 2, 6]
    row_T = torch.repeat_interleave(torch.arange(6), torch.tensor(lengths))
    count = len(row_T)

    def noise(scale: float) -> Any:
        return scale * torch.randn(count, generator=generator, dtype=torch.float64)

    mask_T = torch.rand(count, generator=generator) < 0.8
    mask_T[row_T == 3] = False  # nothing of this row is trained
    layout = Layout(mask_T, row_T, double(1, 0.5, 0.5, 1, 0, 1))
    logprobs_T = -noise(1).abs() - 0.1
    others = {name: logprobs_T + noise(0.3) for name in LOGPROBS}
    advantage_T = double(1, -1, 0.5, -2, 3, -0.3)[row_T]
    return Scores(
        layout,
        layout.totals(),
        logprobs_T,
        advantage_T=advantage_T,
        entropy_T=noise(1).abs(),
        divergence_T=noise(1).abs(),
        **others,
    )


def configs() -> dict[str, LossConfig]:
    """Return all objectives, and what they leave out."""
    weighed = {
        "importance": (Importance(rule="token_truncate"), Importance(rule="geometric_mask", low=0.8, high=1.3)),
        "entropy_coefficient": 0.01,
    }
    return {
        **{name: config.model_copy(update={"horizon": 16}) for name, config in OBJECTIVES.items()},
        "weighed": OBJECTIVES["sdar"].model_copy(update=weighed),
        "entropy gate": OBJECTIVES["sdar"].model_copy(update={"gate": "entropy"}),
        "soft-OR": OBJECTIVES["sdar"].model_copy(update={"gate": "soft_or", "kl": "k3+"}),
        "sequence": OBJECTIVES["gspo"].model_copy(update={"importance": (Importance(rule="sequence_mask"),)}),
    }


@pytest.mark.parametrize("name", configs())
@settings(max_examples=15)
@given(data=st.data())
def test_splits_order_and_padding_leave_loss_gradient_and_figures_equal(
    name: str, batch: Scores, data: st.DataObject
) -> None:
    config = configs()[name]
    loss, gradient, figures = run(batch, config)
    order = data.draw(st.permutations(range(6)))
    ends = sorted(data.draw(st.sets(st.integers(1, 5))))
    pad = data.draw(st.integers(0, 2))
    found, parts = 0.0, []
    gradients = torch.zeros_like(gradient)
    for start, end in zip([0, *ends], [*ends, 6], strict=True):
        micro = cut(batch, order[start:end], pad=pad)
        part, rows_gradient, part_figures = run(micro, config)
        found += part
        parts.append(part_figures)
        places = torch.cat([torch.where(batch.layout.row_T == row)[0] for row in order[start:end]])
        kept = torch.cat(
            [
                torch.arange(len(own)) < len(own) - pad
                for row in range(end - start)
                if len(own := torch.where(micro.layout.row_T == row)[0])
            ]
        )
        gradients[places] = rows_gradient[kept]
        assert not rows_gradient[~kept].any()
    assert abs(found - loss) < 1e-10
    assert np.allclose(gradients, gradient, rtol=0, atol=1e-10)
    merged = merge_figures(parts)
    assert merged.keys() == figures.keys()
    assert all(abs(float(merged[key] - figures[key])) < 1e-10 for key in figures)


@pytest.mark.parametrize("name", configs())
def test_what_is_not_trained_has_no_gradient_and_what_weighs_nothing_neither(name: str, batch: Scores) -> None:
    _, gradient, _ = run(batch, configs()[name])
    counts = batch.layout.mask_T & (batch.layout.weight_R[batch.layout.row_T] > 0)
    assert not gradient[~counts].any()
    if name == "opsd_full":  # its gradient comes through the divergence
        return
    assert gradient[counts].any()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_published_objectives_are_valid_and_survive_json(name: str) -> None:
    config = OBJECTIVES[name]
    assert LossConfig.model_validate_json(config.model_dump_json()) == config


def test_published_names_mean_what_they_say() -> None:
    sdar = OBJECTIVES["sdar"]
    assert (sdar.distillation_coefficient, sdar.beta, sdar.gate) == (0.01, 5.0, "gap")
    assert (sdar.dual_clip, sdar.kl_coefficient, sdar.entropy_coefficient) == (3.0, 0.01, 0.001)
    assert OBJECTIVES["grpo_opsd"] == sdar.model_copy(update={"beta": 0.0})
    assert OBJECTIVES["opsd"] == sdar.model_copy(update={"policy_coefficient": 0.0})
    assert OBJECTIVES["skill_sd"].distillation_coefficient == 0.001
    assert OBJECTIVES["rlsd"].distillation_coefficient == 0.5
    assert OBJECTIVES["dapo"].clip_high == 0.28


def test_rlsd_without_strength_is_grpo_to_the_last_bit(batch: Scores) -> None:
    grpo = OBJECTIVES["verl_agent_grpo"]
    rlsd = OBJECTIVES["rlsd"].model_copy(update={"distillation_coefficient": 0.0})
    assert torch.equal(run(batch, grpo)[1], run(batch, rlsd)[1])
    # Nobody asks a teacher who has no say.
    assert torch.equal(run(batch, grpo)[1], run(replace(batch, teacher_T=None), rlsd)[1])
    assert not torch.equal(run(batch, grpo)[1], run(batch, OBJECTIVES["rlsd"])[1])


def test_an_objective_without_terms_has_a_gradient_of_0(vector_f: Scores) -> None:
    loss, gradient, _ = run(vector_f, LossConfig(policy_coefficient=0.0))
    assert loss == 0
    assert not gradient.any()


def test_an_empty_micro_batch_adds_nothing(vector_f: Scores) -> None:
    nothing = replace(vector_f.layout, mask_T=torch.zeros(4, dtype=torch.bool))
    loss, gradient, figures = run(replace(vector_f, layout=nothing), SDAR)
    assert loss == 0
    assert not gradient.any()
    assert all(value == 0 for value in figures.values())
    assert nothing.totals() == Totals(0, 0)


def test_kl_in_the_advantage_moves_the_policy_as_much_as_the_right_kl_in_the_loss(vector_f: Scores) -> None:
    scores = replace(vector_f, reference_T=vector_f.old_T + double(0.3, -0.2, 0.1, 0.4))
    inside = run(scores, LossConfig(kl_coefficient=0.1, kl_as="advantage"))
    outside = run(scores, LossConfig(kl_coefficient=0.1, kl="k2"))
    assert np.allclose(inside[1], outside[1], **EXACT)
    assert "kl/loss" not in inside[2]
    assert np.allclose(inside[2]["kl/mean"], -0.15, **EXACT)


def test_a_strength_that_turns_advantages_round_is_refused() -> None:
    with pytest.raises(ValidationError, match="turn advantages round"):
        LossConfig(distillation="rlsd", distillation_coefficient=1.5)


@pytest.mark.parametrize("name", configs())
def test_single_precision_keeps_four_digits_however_the_batch_is_cut(name: str, batch: Scores) -> None:
    single = replace(batch, **{part: getattr(batch, part).float() for part in ("logprobs_T", "advantage_T", *LOGPROBS)})
    loss, gradient, _ = run(batch, configs()[name])
    parts = [run(cut(single, [row]), configs()[name]) for row in range(6)]
    assert sum(part for part, _, _ in parts) == pytest.approx(loss, rel=1e-4)
    assert np.allclose(torch.cat([own for _, own, _ in parts]), gradient, rtol=1e-4, atol=1e-6)


def test_without_torch_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import agentgym_tok.learner; import agentgym_tok.learner.losses"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra" in ran.stderr
    assert 'pip install "agentgym-tok[torch]"' in ran.stderr


def test_entropy_earns_a_bonus_for_trained_tokens(vector_f: Scores) -> None:
    entropy_T = double(0.5, 1.0, 1.5, 3.0).requires_grad_()
    loss, figures = total_loss(
        replace(vector_f, entropy_T=entropy_T), LossConfig(policy_coefficient=0.0, entropy_coefficient=0.1)
    )
    loss.backward()
    assert np.allclose(loss.item(), -0.15, **EXACT)
    assert np.allclose(figures["entropy/mean"], 1.5, **EXACT)
    assert entropy_T.grad is not None
    assert np.allclose(entropy_T.grad, -0.025, **EXACT)
