"""Corrections of mismatched probabilities are the published ones: vector M."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.learner.losses import Importance, Layout, effective_sample_size, importance_weights, mismatch  # noqa: E402

Lay = Callable[..., Layout]
EXACT = {"rtol": 0, "atol": 1e-12}
TRAIN = torch.tensor([-0.9, -2, -1], dtype=torch.float64, requires_grad=True)
ROLLOUT = torch.tensor([-1, -1, -3], dtype=torch.float64)
WEIGHTS = [1.1051709180756475, 0.36787944117144233, 7.38905609893065]
SEQUENCE, GEOMETRIC = 3.0041660239464334, 1.4429168666553371
ALL = 1e9


@pytest.mark.parametrize(
    ("rule", "low", "high", "expected"),
    [
        ("token_truncate", 0, ALL, WEIGHTS),
        ("token_truncate", 0, 2, [WEIGHTS[0], WEIGHTS[1], 2]),
        ("token_truncate", 0.5, 2, [WEIGHTS[0], 0.5, 2]),
        ("token_mask", 0.5, 5, [WEIGHTS[0], 0, 0]),
        ("sequence_truncate", 0, ALL, [SEQUENCE] * 3),
        ("sequence_truncate", 0, 2, [2] * 3),
        ("sequence_mask", 0, 3.1, [SEQUENCE] * 3),
        ("sequence_mask", 0, 3, [0] * 3),
        ("geometric_mask", 0.5, 1.5, [1] * 3),
        ("geometric_mask", 0.5, 1.44, [0] * 3),
        ("geometric_mask", 1.443, 5, [0] * 3),
    ],
)
def test_weights_are_those_of_vector_m(rule: Any, low: float, high: float, expected: list[float], lay: Lay) -> None:
    found = importance_weights(TRAIN, ROLLOUT, lay([[1, 1, 1]]), Importance(rule=rule, low=low, high=high))
    assert np.allclose(found, expected, **EXACT)
    assert not found.requires_grad


def test_the_geometric_weight_is_the_bound_of_its_mask(lay: Lay) -> None:
    for high, kept in ((GEOMETRIC + 1e-9, 1), (GEOMETRIC - 1e-9, 0)):
        rule = Importance(rule="geometric_mask", low=0.1, high=high)
        assert importance_weights(TRAIN, ROLLOUT, lay([[1, 1, 1]]), rule).tolist() == [kept] * 3


def test_sequences_and_what_the_world_said_do_not_mix(lay: Lay) -> None:
    layout = lay([[1, 0], [1]])
    found = importance_weights(TRAIN, ROLLOUT, layout, Importance(rule="sequence_truncate", high=ALL))
    assert np.allclose(found, [WEIGHTS[0], 0, WEIGHTS[2]], **EXACT)


def test_figures_are_those_of_vector_m() -> None:
    mask = torch.tensor([True, True, True])
    found = mismatch(TRAIN, ROLLOUT, mask)
    assert np.allclose(found["k3"], 1.5873688193925801, **EXACT)
    assert np.allclose(found["ess"], 1.403575872968446, **EXACT)
    assert np.allclose(found["max_gap"], 2, **EXACT)
    assert np.allclose(found["perplexity_ratio"], np.exp(-1.1 / 3), **EXACT)
    assert np.allclose(effective_sample_size(torch.tensor([3.0, 3.0, 3.0]), mask), 3, atol=1e-6)
    nothing = torch.tensor([False] * 3)
    assert float(effective_sample_size(TRAIN.detach(), nothing)) == 0
    assert {name: float(value) for name, value in mismatch(TRAIN, ROLLOUT, nothing).items()} == {
        "k3": 0,
        "perplexity_ratio": 1,
        "ess": 0,
        "max_gap": 0,
    }


def test_equal_probabilities_weigh_exactly_1(lay: Lay) -> None:
    for rule in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "geometric_mask"):
        found = importance_weights(ROLLOUT, ROLLOUT, lay([[1, 1], [1]]), Importance(rule=rule, low=0.5))
        assert found.tolist() == [1, 1, 1]


def test_a_rule_that_nothing_passes_is_refused() -> None:
    with pytest.raises(ValidationError, match="no weight lies between"):
        Importance(rule="token_mask", low=3, high=2)
