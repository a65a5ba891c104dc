"""Wilson intervals: published values, and what every interval must hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from statsmodels.stats.proportion import proportion_confint

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate import wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Newcombe (1998), Statistics in Medicine 17, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_published_intervals_are_met(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_it_is_the_interval_of_statsmodels(counts: tuple[int, int], confidence: float) -> None:
    expected = proportion_confint(*counts, alpha=1 - confidence, method="wilson")
    assert wilson(*counts, confidence) == pytest.approx(expected, abs=1e-9)


@given(st.integers(0, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_the_interval_holds_the_rate_and_mirrors(counts: tuple[int, int], confidence: float) -> None:
    successes, n = counts
    low, high = wilson(successes, n, confidence)
    assert 0 <= low <= (successes / n if n else 0.5) <= high <= 1
    mirrored = wilson(n - successes, n, confidence)
    assert mirrored == pytest.approx((1 - high, 1 - low))
    assert high - low <= sum((-1, 1)[i] * bound for i, bound in enumerate(wilson(successes, n, 0.9995)))


@pytest.mark.parametrize(("successes", "n", "confidence"), [(-1, 5, 0.95), (6, 5, 0.95), (1, 5, 1.0), (1, 5, 0.0)])
def test_impossible_counts_are_refused(successes: int, n: int, confidence: float) -> None:
    with pytest.raises(ConfigError):
        wilson(successes, n, confidence)


@pytest.mark.parametrize(("rate", "n"), [(0.5, 40), (0.2, 134), (0.9, 140)])
def test_the_interval_covers_the_rate_as_often_as_it_says(rate: float, n: int) -> None:
    # No simulation: the chance of each count is known.
    chance = sum(
        float(binom.pmf(successes, n, rate)) for successes in range(n + 1) if covers(wilson(successes, n), rate)
    )
    assert 0.93 <= chance <= 0.975


def covers(interval: tuple[float, float], value: float) -> bool:
    return interval[0] <= value <= interval[1]
