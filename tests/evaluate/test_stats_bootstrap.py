"""Bootstrap over clusters: scipy's interval, the coverage that it promises, and its edges."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate import bootstrap, wilson
from agentgym_tok.evaluate.stats_bootstrap import clustered_mean

Generator: TypeAlias = np.random.Generator
Drawn: TypeAlias = tuple[np.ndarray[Any, Any], ...]

FINITE = st.floats(0, 1, width=32)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_bca_interval_of_scipy(seed: int) -> None:
    values = np.random.default_rng(seed).exponential(size=60)
    expected = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=40_000, method="BCa", rng=np.random.default_rng(seed)
    ).confidence_interval
    found = bootstrap(values, range(60), resamples=40_000, seed=seed)
    width = expected.high - expected.low
    assert found == pytest.approx((expected.low, expected.high), abs=0.02 * width)


@pytest.mark.parametrize("seed", range(4))
def test_a_macro_average_has_the_bca_interval_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [rng.exponential(size=size) for size in (15, 30, 90)]

    def macro(*samples: Any, axis: int = -1) -> Any:
        return sum(np.mean(sample, axis=axis) for sample in samples) / len(samples)

    expected = scipy.stats.bootstrap(
        kinds, macro, n_resamples=40_000, method="BCa", vectorized=True, rng=np.random.default_rng(seed)
    ).confidence_interval
    values, strata = np.concatenate(kinds), np.repeat(["a", "b", "c"], [15, 30, 90])
    found = bootstrap(values, range(len(values)), strata, resamples=40_000, seed=seed)
    width = expected.high - expected.low
    assert found == pytest.approx((expected.low, expected.high), abs=0.02 * width)
    assert clustered_mean(values, strata) == pytest.approx(np.mean([kind.mean() for kind in kinds]))


@pytest.mark.parametrize("seed", range(3))
def test_equal_clusters_count_as_their_means(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random((30, 4))
    clustered = bootstrap(values.ravel(), np.repeat(np.arange(30), 4), seed=seed)
    assert clustered == pytest.approx(bootstrap(values.mean(axis=1), range(30), seed=seed))
    # Samples of one task that agree tell no more than one of them.
    alike = np.repeat(values[:, 0], 4)
    assert bootstrap(alike, np.repeat(np.arange(30), 4)) == pytest.approx(bootstrap(values[:, 0], range(30)))


def rates(tasks: int, samples: int, a: float, b: float) -> Callable[[Generator], Drawn]:
    """Tasks of different difficulty, a few samples each."""

    def draw(rng: Generator) -> Drawn:
        chances = rng.beta(a, b, tasks)
        solved = rng.random((tasks, samples)) < chances[:, None]
        return solved.ravel(), np.repeat(np.arange(tasks), samples)

    return draw


def uneven(rng: Generator) -> Drawn:
    """Tasks with one to six samples."""
    counts = rng.integers(1, 7, 60)
    tasks = np.repeat(np.arange(60), counts)
    return rng.random(len(tasks)) < rng.beta(2, 2, 60)[tasks], tasks


def kinds(rng: Generator) -> Drawn:
    """Kinds of task, each with a mean of its own, 0.2, 0.5 and 0.8, and as different numbers of tasks."""
    strata = np.repeat([0, 1, 2], [20, 30, 80])
    return rng.random(130) < np.array([0.2, 0.5, 0.8])[strata], np.arange(130), strata


def differences(rng: Generator) -> Drawn:
    """Pairs of solved and not solved, whose chances differ by 0.1."""
    chances = rng.uniform(0.1, 0.8, 70)
    one, two = rng.random((70, 2)) < chances[:, None], rng.random((70, 2)) < chances[:, None] + 0.1
    return (two.astype(float) - one).ravel(), np.repeat(np.arange(70), 2)


@pytest.mark.parametrize(
    ("draw", "mean", "lowest"),
    [
        (lambda rng: (rng.beta(0.5, 0.5, 50), np.arange(50)), 0.5, 0),
        (rates(40, 4, 1, 1), 0.5, 0),
        (rates(60, 4, 0.6, 1.4), 0.3, 0),
        (uneven, 0.5, 0),
        (kinds, 0.5, 0),
        (differences, 0.1, -1),
    ],
    ids=["scores", "clustered", "skewed", "uneven", "macro", "differences"],
)
def test_95_percent_intervals_cover_the_mean_as_often(
    draw: Callable[[Generator], Drawn], mean: float, lowest: float
) -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for turn in range(2_000):
        low, high = bootstrap(*draw(rng), lowest=lowest, highest=1, resamples=600, seed=turn)
        hits += low <= mean <= high
    assert 0.93 <= hits / 2_000 <= 0.975


def test_samples_that_are_taken_for_tasks_would_cover_too_seldom() -> None:
    """The clusters are what the coverage rests on."""
    rng, hits = np.random.default_rng(7), 0
    for turn in range(500):
        solved, _ = rates(40, 4, 0.5, 0.5)(rng)
        low, high = bootstrap(solved, range(len(solved)), lowest=0, highest=1, resamples=400, seed=turn)
        hits += low <= 0.5 <= high
    assert hits / 500 < 0.87


@settings(max_examples=60)
@given(st.lists(st.tuples(FINITE, st.integers(0, 8)), min_size=1, max_size=40))
def test_the_interval_holds_the_mean_and_stays_in_the_range(pairs: list[tuple[float, int]]) -> None:
    values, clusters = zip(*pairs, strict=True)
    low, high = bootstrap(values, clusters, lowest=0, highest=1, resamples=200)
    assert 0 <= low <= np.mean(values) + 1e-12
    assert np.mean(values) - 1e-12 <= high <= 1
    turned = bootstrap(values[::-1], clusters[::-1], lowest=0, highest=1, resamples=200)  # their order says nothing
    assert turned == pytest.approx((low, high))


def test_where_all_tasks_agree_unseen_ones_may_not() -> None:
    reach = wilson(0, 20)[1]
    assert bootstrap([0.0] * 20, range(20), lowest=0, highest=1) == (0, reach)
    assert bootstrap([1.0] * 20, range(20), lowest=0, highest=1) == pytest.approx((1 - reach, 1))
    assert bootstrap([0.0] * 20, range(20), lowest=-1, highest=1) == (-reach, reach)
    assert bootstrap([0.0] * 60, [*range(20)] * 3, lowest=0, highest=1) == (0, reach)
    assert bootstrap([3.0] * 20, range(20)) == (3, 3)
    assert bootstrap([0.5], ["alone"], lowest=0, highest=1)[1] > 0.85


def test_many_clusters_are_drawn_in_pieces_and_give_one_answer() -> None:
    values = np.random.default_rng(0).random(3_000)
    low, high = bootstrap(values, range(3_000), resamples=1_500)
    error = values.std() / math.sqrt(3_000)
    assert (low, high) == pytest.approx((values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.2 * error)
    assert bootstrap(values, range(3_000), resamples=1_500) == (low, high)


@pytest.mark.parametrize(
    "arguments", [([], []), ([math.nan], [0]), ([1.0, 2.0], [0]), ([1.0], [0], [0, 1]), ([[1.0]], [0])]
)
def test_what_has_no_mean_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError):
        bootstrap(*arguments)
