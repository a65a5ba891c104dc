"""Advantages agree with the published estimators to the last digit: vectors A, B and P of the specification."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.advantages import discounted_returns, group_advantages, group_index, rloo, whiten

EXACT = {"rtol": 0, "atol": 1e-12}
ONE = [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("returns", "options", "expected"),
    [
        ([1, 0, 0, 1], {}, [0.8660239037870368, -0.8660239037870368, -0.8660239037870368, 0.8660239037870368]),
        ([10, 0, 0, 0], {}, [1.49999970000006, *[-0.49999990000002] * 3]),
        ([10, 0, 0, 0], {"ddof": 0}, [1.7320504075689696, *[-0.5773501358563231] * 3]),
        ([10, 0, 0, 0], {"scale": "none"}, [7.5, -2.5, -2.5, -2.5]),
        ([10, 10, 0, 0, 0, 0, 0, 0], {}, [*[1.6201848246020405] * 2, *[-0.5400616082006802] * 6]),
        ([0.1, 0.1, 0.1], {}, [0, 0, 0]),
        ([1], {"lone": "return"}, [0.9999990000010001]),
        ([10], {"lone": "return"}, [9.999990000010001]),
        ([10], {}, [0]),
    ],
)
def test_group_advantages_are_those_of_vector_a(returns: list[float], options: dict, expected: list[float]) -> None:
    assert np.allclose(group_advantages(returns, [0] * len(returns), **options), expected, **EXACT)


def test_rloo_is_that_of_vector_a() -> None:
    assert np.allclose(rloo([10, 0, 0, 0], ONE), [10.0, *[-3.333333333333333] * 3], **EXACT)


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    returns = np.array([3.0, 1.0, 4.0, 1.5])
    others = [np.delete(returns, place).mean() for place in range(4)]
    assert np.allclose(rloo(returns, ONE), returns - others, **EXACT)


def test_equal_returns_have_an_advantage_of_exactly_zero() -> None:
    # The mean of three 0.1 is not 0.1.
    for scale in ("group", "batch", "none"):
        assert group_advantages([0.1, 0.1, 0.1], [0, 0, 0], scale=scale).tolist() == [0, 0, 0]


def test_the_deviation_has_ddof_1_and_the_eps_of_verl() -> None:
    ours = group_advantages([10, 0, 0, 0], ONE)
    assert not np.allclose(ours, group_advantages([10, 0, 0, 0], ONE, ddof=0), atol=1e-3)
    assert not np.allclose(ours, group_advantages([10, 0, 0, 0], ONE, eps=1e-4), atol=1e-6)


def test_groups_do_not_see_each_other_unless_the_scale_is_the_batchs() -> None:
    returns, group = [1, 0, 100, 0], [0, 0, 1, 1]
    apart = [*group_advantages([1, 0], [0, 0]), *group_advantages([100, 0], [0, 0])]
    assert np.allclose(group_advantages(returns, group), apart, **EXACT)
    batch = group_advantages(returns, group, scale="batch")
    assert np.allclose(batch, np.array([0.5, -0.5, 50, -50]) / (np.std(returns, ddof=1) + 1e-6), **EXACT)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-10, 10)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_order_of_rollouts_does_not_matter(pairs: list[tuple[int, float]], random: object) -> None:
    group, returns = (np.array(part) for part in zip(*pairs, strict=True))
    order = np.array(random.sample(range(len(pairs)), len(pairs)))  # type: ignore[attr-defined]
    for estimate in (group_advantages, rloo):
        assert np.allclose(estimate(returns, group)[order], estimate(returns[order], group[order]), atol=1e-6)


def test_whitening_is_over_all_tokens() -> None:
    values, counts = [1.0, 0.0, 3.0], [2, 5, 1]
    tokens = np.repeat(values, counts)
    expected = (np.array(values) - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)
    assert np.allclose(whiten(values, counts), expected, **EXACT)
    assert np.allclose(whiten([1, 9, 0], [1, 0, 1])[1], 0, **EXACT)
    assert whiten([1.0], [0]).tolist() == [0]


def test_returns_to_come_skip_what_the_world_says() -> None:
    mask = [0, 1, 1, 0, 0, 1]
    assert discounted_returns([0, 0, 1, 0, 0, 10], mask, gamma=0.5).tolist() == [0, 3, 6, 0, 0, 10]
    assert discounted_returns([0, 0, 1, 0, 0, 10], mask).tolist() == [0, 11, 11, 0, 0, 10]
    with pytest.raises(ConfigError, match="not trained"):
        discounted_returns([1, 0, 0, 0, 0, 0], mask)


def test_the_step_returns_of_vector_p() -> None:
    assert np.allclose(discounted_returns([0, 10], [1, 1], gamma=0.95), [9.5, 10], **EXACT)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs its group"):
        group_advantages([1, 2], [0])
    with pytest.raises(ConfigError, match="not finite"):
        group_advantages([1, float("nan")], [0, 0])
    assert group_index(["b", "a", "b"]).tolist() == [1, 0, 1]
    assert group_advantages([], []).shape == (0,)
