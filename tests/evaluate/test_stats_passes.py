"""pass@k and pass^k: what trying every choice of k samples gives."""

from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate import pass_all_k, pass_at_k

SAMPLES = st.lists(st.booleans(), min_size=1, max_size=9)


@given(SAMPLES.flatmap(lambda samples: st.tuples(st.just(samples), st.integers(1, len(samples)))))
def test_both_are_means_over_all_choices_of_k_samples(drawn: tuple[list[bool], int]) -> None:
    samples, k = drawn
    choices = list(combinations(samples, k))
    assert pass_at_k([sum(samples)], [len(samples)], k)[0] == pytest.approx(fmean(map(any, choices)))
    assert pass_all_k([sum(samples)], [len(samples)], k)[0] == pytest.approx(fmean(map(all, choices)))


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.integers(1, 400))
def test_more_samples_help_one_of_them_and_hurt_all_of_them(counts: tuple[int, int], k: int) -> None:
    solved, drawn = counts
    k = min(k, drawn)
    at, every = (float(estimate([solved], [drawn], k)[0]) for estimate in (pass_at_k, pass_all_k))
    assert 0 <= every <= solved / drawn + 1e-12
    assert solved / drawn - 1e-12 <= at <= 1
    assert pass_at_k([solved], [drawn], 1) == pytest.approx(solved / drawn)
    assert at == pytest.approx(1 - pass_all_k([drawn - solved], [drawn], k)[0])


def test_the_estimates_are_unbiased() -> None:
    chances = np.array([0.1, 0.4, 0.9])
    solved = np.random.default_rng(0).binomial(8, chances, size=(60_000, 3))
    for k in (1, 3, 8):
        at = np.array([pass_at_k(row, np.full(len(row), 8), k).mean() for row in solved.T])
        every = np.array([pass_all_k(row, np.full(len(row), 8), k).mean() for row in solved.T])
        assert at == pytest.approx(1 - (1 - chances) ** k, abs=0.01)
        assert every == pytest.approx(chances**k, abs=0.01)


@pytest.mark.parametrize(("solved", "drawn", "k"), [([1], [1], 2), ([2], [1], 1), ([-1], [1], 1), ([1], [2], 0)])
def test_impossible_counts_are_refused(solved: list[int], drawn: list[int], k: int) -> None:
    for estimate in (pass_at_k, pass_all_k):
        with pytest.raises(ConfigError, match="impossible counts"):
            estimate(solved, drawn, k)
