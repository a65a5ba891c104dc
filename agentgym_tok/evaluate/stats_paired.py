"""Tests of two policies on the same tasks."""

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from agentgym_tok.errors import ConfigError

__all__ = ["mcnemar", "paired_permutation"]

_EXACT = 14
"""Up to so many differences that are not zero, all signs are tried."""
_DRAWN_AT_ONCE = 2**21
"""Signs that are drawn in one piece."""


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p-value that two policies solve equally much.

    Only tasks that one of both solves say anything: under the hypothesis each is a fair coin.

    Args:
        only_first: Tasks that the first policy alone solved.
        only_second: Tasks that the second one alone solved.

    Raises:
        ConfigError: A count is negative.

    Source: McNemar (1947), Psychometrika 12; the exact form is the binomial test of its discordant pairs.
    """
    if min(only_first, only_second) < 0:
        raise ConfigError("impossible counts", where="mcnemar", got=f"{only_first} and {only_second}")
    total = only_first + only_second
    ways = tail = 1
    for place in range(min(only_first, only_second)):
        ways = ways * (total - place) // (place + 1)
        tail += ways
    return min(1.0, 2 * tail / (1 << total))  # whole numbers, however large, are divided exactly


def paired_permutation(differences_C: ArrayLike, *, resamples: int = 10_000, seed: int = 0) -> float:
    """Return the two-sided p-value that differences of pairs are symmetric about zero.

    Under the hypothesis it is chance which policy of a pair had which score, so that each difference may have either
    sign. Up to 14 differences that are not zero are tried in all ways; of more, random ones are drawn, and the p-value
    counts the observed one among them, so that it is never too small.

    Args:
        differences_C: float [C], one for each task: the mean of its samples.
        resamples: How many random signs.
        seed: The same seed gives the same value.

    Raises:
        ConfigError: There are no differences, or they are not finite.

    Source: Fisher (1935), The Design of Experiments, 21; Phipson and Smyth (2010), SAGMB 9, for drawn signs.
    """
    differences = np.asarray(differences_C, dtype=np.float64)
    if differences.ndim != 1 or not len(differences) or not np.isfinite(differences).all():
        raise ConfigError("nothing to compare", where="paired_permutation", got=f"shape {differences.shape}")
    differences = differences[differences != 0]
    # Sums of the same numbers in another order differ in their last bits.
    observed = abs(differences.sum()) * (1 - 1e-12)
    if len(differences) <= _EXACT:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(differences))))
        return float((np.abs(signs @ differences) >= observed).mean())
    rng = np.random.default_rng(seed)
    as_far = 0
    for rows in _pieces(resamples, len(differences)):
        flipped = rng.integers(2, size=(rows, len(differences)), dtype=np.int8)
        sums = differences.sum() - 2 * (flipped @ differences)
        as_far += int(np.count_nonzero(np.abs(sums) >= observed))
    return (1 + as_far) / (1 + resamples)


def _pieces(resamples: int, length: int) -> Iterator[int]:
    """Yield how many rows are drawn at once, so that memory stays bounded."""
    step = max(_DRAWN_AT_ONCE // length, 1)
    return (min(step, resamples - first) for first in range(0, resamples, step))
