"""Intervals for means of scores that come in clusters: several samples of one task are no independent evidence."""

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate.stats import wilson

__all__ = ["bootstrap", "clustered_mean"]

_Floats: TypeAlias = NDArray[np.float64]
_Stratum: TypeAlias = tuple[_Floats, _Floats]
"""Sum and number of the values of each cluster, both [C]."""

_DRAWN_AT_ONCE = 2**21
"""Clusters that are drawn in one piece, so that memory stays bounded."""


def clustered_mean(values_N: ArrayLike, strata_N: ArrayLike | None = None) -> float:
    """Return the mean of all values; with strata the unweighted mean of the strata's means (macro average).

    Args:
        values_N: float [N].
        strata_N: Names [N].

    Raises:
        ConfigError: There are no values.
    """
    values = _checked(values_N)
    strata = np.zeros(len(values)) if strata_N is None else np.asarray(strata_N)
    return float(np.mean([values[strata == name].mean() for name in np.unique(strata)]))


def bootstrap(
    values_N: ArrayLike,
    clusters_N: ArrayLike,
    strata_N: ArrayLike | None = None,
    *,
    lowest: float = -math.inf,
    highest: float = math.inf,
    confidence: float = 0.95,
    resamples: int = 5_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the interval of `clustered_mean` by the BCa bootstrap over whole clusters.

    Clusters are drawn with replacement, within each stratum; a cluster brings all its values. Where all clusters of
    each stratum have one mean, no draw differs, and yet others may: the interval then reaches as far as if of all
    clusters so many lay at the end of the range as Wilson's interval allows where none was seen. Without a range it has
    no width there.

    Args:
        values_N: float [N].
        clusters_N: Names [N]: the task of each value.
        strata_N: Names [N], such as kinds of task; a cluster lies in one stratum.
        lowest: No value can be below.
        highest: No value can be above.
        confidence: Coverage, in (0, 1).
        resamples: How often clusters are drawn.
        seed: The same seed gives the same interval.

    Returns:
        Lower and upper bound.

    Raises:
        ConfigError: There are no values, they are not finite, or the lengths differ.

    Source: Efron (1987), Journal of the American Statistical Association 82 (BCa); for several strata Davison and
        Hinkley (1997), Bootstrap Methods and their Application, 5.3; clusters: Field and Welsh (2007), JRSS B 69.
    """
    strata = _strata(_checked(values_N), np.asarray(clusters_N), None if strata_N is None else np.asarray(strata_N))
    mean = float(np.mean([sums.sum() / counts.sum() for sums, counts in strata]))
    if all(np.ptp(sums / counts) == 0 for sums, counts in strata):
        unseen = wilson(0, sum(len(sums) for sums, _ in strata), confidence)[1]
        low, high = (mean + unseen * (end - mean) if math.isfinite(end) else mean for end in (lowest, highest))
        return low, high
    draws = np.sort(_draws(strata, resamples, np.random.default_rng(seed)))
    low, high = map(float, np.quantile(draws, _levels(draws, mean, strata, confidence)))
    # At the ends of the range rounding must not carry a bound over.
    return max(min(low, mean), lowest), min(max(high, mean), highest)


def _checked(values_N: ArrayLike) -> _Floats:
    values = np.asarray(values_N, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        got = f"shape {values.shape}" if values.ndim != 1 or not len(values) else "values that are not finite"
        raise ConfigError("nothing to take the mean of", where="values_N", got=got, expected="finite numbers, [N]")
    return values


def _strata(values: _Floats, clusters: NDArray[np.generic], strata: NDArray[np.generic] | None) -> list[_Stratum]:
    lengths = {len(values), len(clusters), len(values) if strata is None else len(strata)}
    if len(lengths) > 1:
        raise ConfigError("each value has one cluster and one stratum", where="bootstrap", got=f"lengths {lengths}")
    if strata is None:
        return [_sums(values, clusters)]
    parts = [strata == name for name in np.unique(strata)]
    return [_sums(values[part], clusters[part]) for part in parts]


def _sums(values: _Floats, clusters: NDArray[np.generic]) -> _Stratum:
    _, places = np.unique(clusters, return_inverse=True)
    return np.bincount(places, values).astype(np.float64), np.bincount(places).astype(np.float64)


def _draws(strata: list[_Stratum], resamples: int, rng: np.random.Generator) -> _Floats:
    """Return the means of resampled clusters, [resamples]."""
    drawn = np.zeros(resamples)
    for sums, counts in strata:
        for first, last in _pieces(resamples, len(sums)):
            chosen = rng.integers(len(sums), size=(last - first, len(sums)))
            drawn[first:last] += sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    return drawn / len(strata)


def _pieces(resamples: int, clusters: int) -> Iterator[tuple[int, int]]:
    step = max(_DRAWN_AT_ONCE // clusters, 1)
    return ((first, min(first + step, resamples)) for first in range(0, resamples, step))


def _levels(draws: _Floats, mean: float, strata: list[_Stratum], confidence: float) -> _Floats:
    """Return the quantiles of the draws that bound the interval: shifted for bias, stretched for skew."""
    normal = NormalDist()
    # Draws that meet the mean itself count half; rates meet it often.
    below = ((draws < mean).mean() + (draws <= mean).mean()) / 2
    bias = normal.inv_cdf(min(max(below, 0.5 / len(draws)), 1 - 0.5 / len(draws)))
    acceleration = _acceleration(strata)
    tails = [bias + normal.inv_cdf(level) for level in ((1 - confidence) / 2, (1 + confidence) / 2)]
    return np.array([normal.cdf(bias + tail / (1 - acceleration * tail)) for tail in tails])


def _acceleration(strata: list[_Stratum]) -> float:
    """Return the skewness of what single clusters do to the mean, by leaving each one out."""
    cubes = squares = 0.0
    for sums, counts in strata:
        size = len(sums)
        if size < 2:  # a cluster alone cannot be left out
            continue
        without = (sums.sum() - sums) / (counts.sum() - counts)
        influence = (size - 1) * (without.mean() - without)
        cubes += float((influence**3).sum()) / size**3
        squares += float((influence**2).sum()) / size**2
    return cubes / (6 * squares**1.5) if squares else 0.0
