"""One number for a whole update, however its rows are cut, ordered, padded or left out: vector E."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.errors import ConfigError  # noqa: E402
from agentgym_tok.learner.losses import Layout, Totals, aggregate  # noqa: E402
from agentgym_tok.trace import Row  # noqa: E402

Lay = Callable[..., Layout]
EXACT = {"rtol": 0, "atol": 1e-12}
LOSS = torch.tensor([0.4620709099893783, -0.006692850924284856, 0.0, 0.14621171572600097], dtype=torch.float64)
EXPECTED = {
    "token-mean": 0.1503974436977736,
    "seq-mean-token-mean": 0.14900220104051606,
    "seq-mean-token-sum": 0.3007948873955472,
}


def one(loss_T: Any, layout: Layout, how: Any = "token-mean", **options: Any) -> float:
    return float(aggregate(loss_T, layout, layout.totals(), how, **options))


@pytest.mark.parametrize("how", EXPECTED)
def test_the_aggregations_are_those_of_vector_e(how: Any, lay: Lay) -> None:
    assert np.allclose(one(LOSS, lay([[1, 1, 1], [1]]), how), EXPECTED[how], **EXACT)


def test_dr_grpo_divides_by_a_constant(lay: Lay) -> None:
    layout = lay([[1, 1, 1], [1]])
    found = one(LOSS, layout, "seq-mean-token-sum-norm", horizon=512)
    assert np.allclose(found, EXPECTED["seq-mean-token-sum"] / 512, **EXACT)
    with pytest.raises(ConfigError, match="horizon"):
        one(LOSS, layout, "seq-mean-token-sum-norm")


@pytest.mark.parametrize("how", EXPECTED)
def test_micro_batches_sum_to_the_update_only_under_its_own_totals(how: Any, lay: Lay) -> None:
    whole, parts = lay([[1, 1, 1], [1]]), [lay([[1, 1, 1]]), lay([[1]])]
    totals = parts[0].totals() + parts[1].totals()
    assert totals == whole.totals() == Totals(4, 2)
    cut = [LOSS[:3], LOSS[3:]]
    assert np.allclose(
        sum(float(aggregate(*pair, totals, how)) for pair in zip(cut, parts, strict=True)), EXPECTED[how]
    )
    # The trap: each micro-batch with a denominator of its own, then their mean, is the mean over rows.
    local = np.mean([one(*pair, "token-mean") for pair in zip(cut, parts, strict=True)])
    assert np.allclose(local, EXPECTED["seq-mean-token-mean"], **EXACT)
    assert not np.allclose(local, EXPECTED["token-mean"], atol=1e-4)


@pytest.mark.parametrize("how", EXPECTED)
def test_rows_without_tokens_and_rows_of_weight_0_are_in_no_denominator(how: Any, lay: Lay) -> None:
    layout = lay([[0, 0], [1, 1, 1], [1, 1], [1]], [1.0, 1.0, 0.0, 1.0])
    more = torch.cat([torch.tensor([9.0, 9.0]), LOSS[:3], torch.tensor([7.0, 7.0]), LOSS[3:]])
    assert np.allclose(one(more, layout, how), EXPECTED[how], **EXACT)
    # A row that is there twice, to fill a batch, would have moved the mean.
    assert not np.allclose(one(torch.cat([LOSS, LOSS[3:]]), lay([[1, 1, 1], [1], [1]]), how), EXPECTED[how], atol=1e-5)


@pytest.mark.parametrize("how", [*EXPECTED, "seq-mean-token-sum-norm"])
def test_a_batch_in_which_nothing_is_trained_has_a_loss_of_0(how: Any, lay: Lay) -> None:
    loss_T = torch.tensor([1.0, torch.nan, 2.0], requires_grad=True)
    found = aggregate(loss_T, lay([[0, 0], [0]]), lay([[0, 0], [0]]).totals(), how, horizon=4)
    found.backward()
    assert found.item() == 0
    assert loss_T.grad is not None
    assert not loss_T.grad.any()


def test_what_the_world_said_has_no_part_whatever_stands_there(lay: Lay) -> None:
    loss_T = torch.tensor([1.0, torch.nan, 3.0, torch.inf], dtype=torch.float64, requires_grad=True)
    layout = lay([[1, 0, 1, 0]])
    found = aggregate(loss_T, layout, layout.totals())
    found.backward()
    assert found.item() == 2
    assert loss_T.grad is not None
    assert loss_T.grad.tolist() == [0.5, 0, 0.5, 0]


def test_rows_whose_weights_sum_to_1_are_one_sequence(lay: Lay) -> None:
    whole, cut = lay([[1, 1, 1, 1], [1]]), lay([[1], [1, 1, 1], [1]], [0.25, 0.75, 1.0])
    loss_T = torch.tensor([1.0, 2, 3, 4, 5], dtype=torch.float64)
    for how in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"):
        assert np.allclose(one(loss_T, cut, how, horizon=8), one(loss_T, whole, how, horizon=8), **EXACT)


def test_rows_are_laid_one_behind_the_other(make_row: Callable[..., Row]) -> None:
    layout = Layout.of([make_row("a", [0, 1], weight=0.5), make_row("b", [1], tokens=[3])])
    assert layout.mask_T.tolist() == [False, True, False, True, False, True, True, True]
    assert layout.row_T.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert layout.row_tokens().tolist() == [2, 3]
    assert layout.totals() == Totals(5, 1.5)
