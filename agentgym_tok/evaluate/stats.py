"""Intervals for rates."""

import math
from statistics import NormalDist

from agentgym_tok.errors import ConfigError

__all__ = ["wilson"]


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a rate.

    It stays inside [0, 1] and has a width at 0 and at n successes, where the usual interval has none. For the mean of
    scores between 0 and 1 it is too wide rather than too narrow: no such scores vary more than successes do.

    Args:
        successes: How many succeeded, or the sum of the scores.
        n: Out of how many; 0 gives the whole range.
        confidence: Coverage, in (0, 1).

    Returns:
        Lower and upper bound.

    Raises:
        ConfigError: The counts or the confidence make no sense.

    Source: Wilson (1927), Journal of the American Statistical Association 22.
    """
    if not 0 <= successes <= n or not 0 < confidence < 1:
        raise ConfigError("impossible counts", where="wilson", got=f"{successes} of {n} at {confidence}")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    centre = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At the ends the bounds are exact; rounding must not move them off.
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == n else (centre + spread) / scale
    return low, high
