"""Tests of pairs: the p-values of statsmodels and scipy, and no more false alarms than they promise."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate import mcnemar, paired_permutation


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_that_of_statsmodels(first: int, second: int) -> None:
    if first + second:
        expected = statsmodels_mcnemar([[5, first], [second, 9]], exact=True).pvalue
        assert mcnemar(first, second) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(first, second) == mcnemar(second, first)


def test_mcnemar_of_runs_that_agree_and_of_large_ones() -> None:
    assert mcnemar(0, 0) == mcnemar(7, 7) == 1
    assert mcnemar(9_900, 10_100) == pytest.approx(scipy.stats.binomtest(9_900, 20_000).pvalue)
    assert mcnemar(0, 2_000) == pytest.approx(0)


@settings(max_examples=40)
@given(st.lists(st.integers(-8, 8), min_size=2, max_size=9))
def test_few_pairs_are_permuted_in_all_ways_as_scipy_does(eighths: list[int]) -> None:
    differences = np.array(eighths) / 8  # sums are exact, so that ties are ties
    expected = scipy.stats.permutation_test(
        (differences,), lambda sample, axis: abs(sample.mean(axis=axis)), permutation_type="samples",
        alternative="greater", n_resamples=math.inf,
    ).pvalue  # fmt: skip
    assert paired_permutation(differences) == pytest.approx(expected)


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_many_pairs_come_close_to_scipy(shift: float) -> None:
    differences = np.random.default_rng(3).normal(shift, 1, 80)
    expected = scipy.stats.ttest_1samp(differences, 0).pvalue
    assert paired_permutation(differences, resamples=50_000) == pytest.approx(expected, abs=0.01)
    assert paired_permutation(differences, seed=1) == paired_permutation(differences, seed=1)


def test_single_samples_of_solved_and_not_solved_agree_with_mcnemar() -> None:
    differences = np.array([1.0] * 9 + [-1.0] * 2 + [0.0] * 40)
    assert paired_permutation(differences) == pytest.approx(mcnemar(9, 2))


def test_false_alarms_are_no_more_than_promised() -> None:
    rng = np.random.default_rng(5)
    alarms = [paired_permutation(rng.choice((-0.5, 0.0, 0.25, 1.0), 30) * rng.choice((-1, 1), 30), resamples=199,
                                 seed=turn) <= 0.05 for turn in range(1_000)]  # fmt: skip
    assert 0.03 <= np.mean(alarms) <= 0.065


def test_drawn_signs_never_make_a_p_value_of_zero() -> None:
    assert paired_permutation([1.0] * 30, resamples=99) == 1 / 100


def test_runs_that_agree_everywhere_do_not_differ() -> None:
    assert paired_permutation([0.0] * 30) == 1


def test_nothing_to_compare_is_refused() -> None:
    for differences in ([], [math.nan], [[0.5]]):
        with pytest.raises(ConfigError):
            paired_permutation(differences)
    with pytest.raises(ConfigError):
        mcnemar(-1, 2)
