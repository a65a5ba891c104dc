"""Axes: round numbers between two ends."""

import math
from collections.abc import Sequence

from agentgym_tok.evaluate.report.charts import Bars, Lines

__all__ = ["height_of", "range_of", "texts", "ticks", "ticks_of"]

_ROUND = (1, 2, 2.5, 5, 10)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers from `low` to `high`, at most about so many."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in _ROUND if size * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def range_of(chart: Lines) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the ends of both axes of curves; that of values begins at 0 where they come near it."""
    xs = [x for curve in chart.curves for x, _ in curve.points]
    ys = [y for curve in chart.curves for _, y in curve.points]
    ys += [y for curve in chart.curves for ends in curve.band for y in ends]
    across = (min(xs), max(xs)) if min(xs) < max(xs) else (min(xs) - 0.5, max(xs) + 0.5)
    if chart.share:
        return across, (0.0, 1.0)
    low, high = min(ys), max(ys)
    if 0 < low < 0.4 * high:
        low = 0.0
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    return across, (low if low == 0 else low - room, high + room)


def ticks_of(chart: Bars) -> list[float]:
    """Return the ticks of a distribution: whole numbers where bars stand around them."""
    low, high = chart.edges[0], chart.edges[-1]
    if (low % 1, high % 1, chart.edges[1] - low) != (0.5, 0.5, 1.0):
        return ticks(low, high)
    return [value for value in ticks(low + 0.5, high - 0.5) if value.is_integer()]


def height_of(chart: Bars) -> float:
    """Return the largest share of any bar."""
    return max(max(counts) / sum(counts) for counts in chart.counts.values() if sum(counts)) or 1.0


def texts(values: Sequence[float]) -> list[str]:
    """Return what stands at ticks: all with the digits that tell them apart."""
    if all(float(value).is_integer() for value in values):
        return [f"{int(value):,}".replace("-", "\u2212") for value in values]
    digits = next((digits for digits in range(1, 6) if all(_near(value, round(value, digits)) for value in values)), 6)
    return [f"{value:.{digits}f}".replace("-", "\u2212") for value in values]


def _near(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12)
