"""Figures, before anybody draws them: what stands in them, and the same as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agentgym_tok.evaluate.report.tables import Cell, Column, Table

__all__ = ["Bars", "Chart", "Curve", "Dots", "Figure", "Lines", "Panel", "Shares"]

Estimate: TypeAlias = tuple[float, float, float]
"""A mean, and the ends of its interval."""


@dataclass(frozen=True, slots=True)
class Dots:
    """Means with intervals, in percent: a row for each label, in it a dot for each run.

    Args:
        labels: Of the rows.
        values: By run's number, one for each label, from 0 to 1; None where a run has none.
        signed: Whether they are differences, from -1 to 1.
    """

    labels: tuple[str, ...]
    values: dict[int, tuple[Estimate | None, ...]]
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a run.

    Args:
        run: Its number.
        name: What it shows; empty for what the figure is named after.
        points: Places and values.
        band: Lowest and highest around each point.
        marked: Whether there are few points, each with a mark of its own; bands are whiskers then.
    """

    run: int
    name: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...] = ()
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves over one axis.

    Args:
        curves: They.
        x: What the horizontal axis shows.
        share: Whether values are shares, shown in percent from 0 to 100.
        whole: Whether places are whole numbers, each worth a tick.
    """

    curves: tuple[Curve, ...]
    x: str
    share: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """A distribution: what share of things lies between neighbouring edges, run by run.

    Args:
        edges: One more than bars.
        counts: By run's number.
        x: What is measured.
    """

    edges: tuple[float, ...]
    counts: dict[int, tuple[int, ...]]
    x: str


@dataclass(frozen=True, slots=True)
class Shares:
    """What wholes are made of: a bar for each run and label.

    Args:
        kinds: What the parts are.
        rows: Label, run's number, and a count for each kind.
    """

    kinds: tuple[str, ...]
    rows: tuple[tuple[str, int, tuple[int, ...]], ...]


Chart: TypeAlias = Dots | Lines | Bars | Shares


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a figure, with what it is called there."""

    title: str
    chart: Chart


@dataclass(frozen=True, slots=True)
class Figure:
    """Several charts that show the same of several parts.

    Args:
        name: Of its files.
        title: Above it.
        panels: The charts.
        runs: Names of the runs, by number.
        note: Below it.
        full: Points that the charts sum up, for the file.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    runs: tuple[str, ...]
    note: str = ""
    full: tuple["Panel", ...] = ()

    @property
    def shown(self) -> tuple[int, ...]:
        """Numbers of the runs that occur."""
        return tuple(sorted({number for panel in self.panels for number in _numbers(panel.chart)}))

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the parts of bars are; nothing for other charts."""
        return next((panel.chart.kinds for panel in self.panels if isinstance(panel.chart, Shares)), ())

    def table(self) -> Table:
        """Return all that stands in it."""
        rows: list[tuple[Cell, ...]] = []
        names: tuple[str, ...] = ()
        for panel in self.full or self.panels:
            names, found = _table(panel.chart, self.runs)
            rows += [(panel.title, *row) for row in found]
        return Table(self.name, self.title, tuple(Column(name, name) for name in ("panel", *names)), tuple(rows))


def _numbers(chart: Chart) -> Sequence[int]:
    if isinstance(chart, Dots):
        return [*chart.values]
    if isinstance(chart, Lines):
        return [curve.run for curve in chart.curves]
    return [*chart.counts] if isinstance(chart, Bars) else [number for _, number, _ in chart.rows]


def _table(chart: Chart, runs: Sequence[str]) -> tuple[tuple[str, ...], Iterator[tuple[Cell, ...]]]:
    if isinstance(chart, Dots):
        return ("label", "run", "mean", "low", "high"), _dots(chart, runs)
    if isinstance(chart, Lines):
        return ("run", "curve", "x", "y"), _lines(chart, runs)
    if isinstance(chart, Bars):
        return ("run", "from", "to", "count"), _bars(chart, runs)
    return ("label", "run", "kind", "count"), _shares(chart, runs)


def _dots(chart: Dots, runs: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for place, label in enumerate(chart.labels):
        for number, values in chart.values.items():
            found = values[place]
            if found is not None:
                yield label, runs[number], *found


def _lines(chart: Lines, runs: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for curve in chart.curves:
        yield from ((runs[curve.run], curve.name, x, y) for x, y in curve.points)


def _bars(chart: Bars, runs: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for number, counts in chart.counts.items():
        for low, high, count in zip(chart.edges, chart.edges[1:], counts, strict=False):
            yield runs[number], low, high, count


def _shares(chart: Shares, runs: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for label, number, counts in chart.rows:
        yield from ((label, runs[number], kind, count) for kind, count in zip(chart.kinds, counts, strict=True))
