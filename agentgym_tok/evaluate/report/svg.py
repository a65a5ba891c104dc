"""Charts as SVG that takes its colours and letters from the page around it, light or dark."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from agentgym_tok.evaluate.report.charts import Bars, Chart, Curve, Dots, Figure, Lines, Panel, Shares
from agentgym_tok.evaluate.report.scales import height_of, range_of, texts, ticks, ticks_of
from agentgym_tok.evaluate.report.text import number, one_line, percent, signed, visible

__all__ = ["COLOURS", "legend_mark", "panel_svg"]

COLOURS = 8
"""How many runs have a colour of their own."""

_WIDTH = 440.0
_LETTER = 6.3
"""About how wide one is at 12 pixels."""
_RIGHT, _BELOW = 14.0, 36.0


@dataclass(frozen=True, slots=True)
class _Frame:
    """Map values to places inside a rectangle."""

    left: float
    top: float
    right: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        low, high = self.x
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def down(self, value: float) -> float:
        low, high = self.y
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)


def panel_svg(figure: Figure, panel: Panel) -> Markup:
    """Return a panel as SVG, with words for those who cannot see it and for who points at a mark."""
    draw: dict[type, Callable[..., tuple[float, list[str]]]] = {
        Dots: _dots,
        Lines: _lines,
        Bars: _bars,
        Shares: _shares,
    }
    height, marks = draw[type(panel.chart)](panel.chart, figure)
    words = escape(visible(_words(figure, panel)))
    head = f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-label="{words}" class="chart">'
    # The pieces were escaped where they were made.
    return Markup("").join(map(Markup, (head, *marks, "</svg>")))


def legend_mark(run: int) -> Markup:
    """Return the mark that stands for a run."""
    line = '<line x1="1" x2="25" y1="7" y2="7" class="line"/>'
    return Markup(  # noqa: S704
        f'<svg viewBox="0 0 26 14" width="26" height="14" aria-hidden="true" class="c{run % COLOURS}">'
        f"{line}{_mark(13, 7, run)}</svg>"
    )


# ---- kinds of charts


def _dots(chart: Dots, figure: Figure) -> tuple[float, list[str]]:
    left = _gutter(chart.labels)
    row = 12.0 * len(chart.values) + 9.0
    frame = _Frame(left, 6, _WIDTH - 52, 6 + row * len(chart.labels), (-1 if chart.signed else 0, 1), (0, 1))
    places = [-1.0, -0.5, 0.0, 0.5, 1.0] if chart.signed else [0.0, 0.25, 0.5, 0.75, 1.0]
    marks = [*_across(frame, places, texts([100 * place for place in places]))]
    if chart.signed:
        x = frame.across(0)
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top:.1f}" y2="{frame.bottom:.1f}" class="axis"/>')
    said = _signed if chart.signed else percent
    for place, label in enumerate(chart.labels):
        top = frame.top + row * place
        if place:
            marks.append(f'<line x1="0" x2="{_WIDTH:.0f}" y1="{top:.1f}" y2="{top:.1f}" class="rule"/>')
        marks.append(_text(left - 8, top + row / 2 + 4, _short(label), "end"))
        for order, (run, values) in enumerate(chart.values.items()):
            found = values[place]
            if found is None:
                continue
            y = top + 10.5 + 12 * order
            mean, low, high = found
            words = f"{figure.runs[run]}, {label}: {said(mean)} ({said(low)} to {said(high)})"
            x1, x2 = frame.across(low), frame.across(high)
            marks.append(
                f'<g class="c{run % COLOURS}">{_title(words)}'
                f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="whisker"/>'
                f"{_mark(frame.across(mean), y, run)}</g>"
            )
            marks.append(_text(_WIDTH, y + 4, said(mean), "end", "value"))
    return frame.bottom + 22, marks


def _lines(chart: Lines, figure: Figure) -> tuple[float, list[str]]:
    (x, y) = range_of(chart)
    at_y = ticks(*y, 4)
    words_y = texts([100 * value for value in at_y] if chart.share else at_y)
    frame = _Frame(max(34.0, _gutter(words_y)), 8, _WIDTH - _RIGHT, 176, x, y)
    at_x = [float(k) for k in range(int(x[0] + 0.5), int(x[1]) + 1)] if chart.whole and x[1] - x[0] < 10 else ticks(*x)
    marks = [*_down(frame, at_y, words_y), *_across(frame, at_x, texts(at_x), grid=False)]
    marks.append(_text((frame.left + frame.right) / 2, frame.bottom + 33, chart.x, "middle", "faint"))
    names = list(dict.fromkeys(curve.name for curve in chart.curves))
    for place, curve in enumerate(chart.curves):
        aside = 3.5 * (place - (len(chart.curves) - 1) / 2) if curve.marked and curve.band else 0.0
        dashed = names.index(curve.name) > 0
        marks += _curve(frame, curve, figure.runs[curve.run], aside, dashed=dashed, share=chart.share)
    return frame.bottom + _BELOW + 2, marks


def _curve(frame: _Frame, curve: Curve, run: str, aside: float, *, dashed: bool, share: bool) -> Iterator[str]:
    places = [(frame.across(x) + aside, frame.down(y)) for x, y in curve.points]
    yield f'<g class="c{curve.run % COLOURS}">{_title(", ".join(filter(None, (run, curve.name))))}'
    if curve.band and curve.marked:
        for (x, _), (low, high) in zip(places, curve.band, strict=True):
            ends = f'y1="{frame.down(low):.1f}" y2="{frame.down(high):.1f}"'
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} class="whisker"/>'
    elif len(curve.band) > 1:
        above = [f"{x:.1f},{frame.down(high):.1f}" for (x, _), (_, high) in zip(places, curve.band, strict=True)]
        below = [f"{x:.1f},{frame.down(low):.1f}" for (x, _), (low, _) in zip(places, curve.band, strict=True)]
        yield f'<polygon points="{" ".join([*above, *reversed(below)])}" class="band"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{path}" class="line{" dashed" if dashed else ""}"/>'
    if curve.marked and len(places) <= 60:
        for (x, y), (place, value) in zip(places, curve.points, strict=True):
            words = f"{run}, {curve.name}, {number(place)}: {percent(value) if share else number(value)}"
            yield f"<g>{_title(words)}{_mark(x, y, curve.run)}</g>"
    yield "</g>"


def _bars(chart: Bars, figure: Figure) -> tuple[float, list[str]]:
    top = height_of(chart)
    at_y = ticks(0, top, 3)
    words_y = [f"{word} %" for word in texts([100 * value for value in at_y])]
    frame = _Frame(_gutter(words_y), 8, _WIDTH - _RIGHT, 136, (chart.edges[0], chart.edges[-1]), (0, top))
    at_x = ticks_of(chart)
    marks = [*_down(frame, at_y, words_y), *_across(frame, at_x, texts(at_x), grid=False)]
    marks.append(_text((frame.left + frame.right) / 2, frame.bottom + 33, chart.x, "middle", "faint"))
    for run, counts in chart.counts.items():
        total = sum(counts)
        points = [f"{frame.left:.1f},{frame.bottom:.1f}"]
        for low, high, count in zip(chart.edges, chart.edges[1:], counts, strict=False):
            y = frame.down(count / total)
            points += [f"{frame.across(low):.1f},{y:.1f}", f"{frame.across(high):.1f},{y:.1f}"]
        points.append(f"{frame.right:.1f},{frame.bottom:.1f}")
        words = f"{figure.runs[run]}: {total:,}"
        marks.append(
            f'<g class="c{run % COLOURS}">{_title(words)}<polygon points="{" ".join(points)}" class="bars"/></g>'
        )
    return frame.bottom + _BELOW + 2, marks


def _shares(chart: Shares, figure: Figure) -> tuple[float, list[str]]:
    several = len({run for _, run, _ in chart.rows}) > 1
    labels = [f"{label} \u00b7 {figure.runs[run]}" if several else label for label, run, _ in chart.rows]
    left = _gutter(labels, most=160)
    marks: list[str] = []
    y, before = 2.0, ""
    for (label, _, counts), words in zip(chart.rows, labels, strict=True):
        y += 8 if before and before != label else 0
        before = label
        marks.append(_text(left - 8, y + 14, _short(words, 24), "end"))
        total, x = sum(counts), left
        for kind, count in enumerate(counts):
            wide = (_WIDTH - left) * count / total
            title = _title(f"{words}: {count:,} of {total:,} {chart.kinds[kind]}")
            box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="19" class="e{kind}"/>'
            inside = len(f"{count:,}") * 7.5 + 6 < wide
            said = _text(x + wide / 2, y + 14, f"{count:,}", "middle", f"on-e{kind}") if count and inside else ""
            marks.append(f"<g>{title}{box}{said}</g>" if count else "")
            x += wide
        y += 23
    return y, marks


# ---- pieces


def _signed(difference: float) -> str:
    return signed(100 * difference)


def _across(frame: _Frame, places: Sequence[float], words: Sequence[str], *, grid: bool = True) -> Iterator[str]:
    bottom = f'y1="{frame.bottom:.1f}" y2="{frame.bottom:.1f}"'
    yield f'<line x1="{frame.left:.1f}" x2="{frame.right:.1f}" {bottom} class="axis"/>'
    for place, word in zip(places, words, strict=True):
        x = frame.across(place)
        if grid:
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top:.1f}" y2="{frame.bottom:.1f}" class="rule"/>'
        yield _text(x, frame.bottom + 16, word, "middle", "faint")


def _down(frame: _Frame, places: Sequence[float], words: Sequence[str]) -> Iterator[str]:
    for place, word in zip(places, words, strict=True):
        y = frame.down(place)
        yield f'<line x1="{frame.left:.1f}" x2="{frame.right:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="rule"/>'
        yield _text(frame.left - 7, y + 4, word, "end", "faint")


def _mark(x: float, y: float, run: int) -> str:
    """Return the mark of a run: runs differ in shape too, for those who see few colours."""
    shape = run % 4
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="mark"/>'
    corners = {
        1: ((-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)),
        2: ((0, -4.8), (4.4, 3.4), (-4.4, 3.4)),
        3: ((0, -5), (5, 0), (0, 5), (-5, 0)),
    }[shape]
    points = " ".join(f"{x + right:.1f},{y + down:.1f}" for right, down in corners)
    return f'<polygon points="{points}" class="mark"/>'


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(visible(words))}</text>'


def _title(words: str) -> str:
    return f"<title>{escape(visible(words))}</title>"


def _gutter(labels: Sequence[str], most: float = 130.0) -> float:
    return min(most, max((len(_short(label)) for label in labels), default=0) * _LETTER + 14)


def _short(label: str, most: int = 19) -> str:
    return one_line(label, most)


def _words(figure: Figure, panel: Panel) -> str:
    """Return what a chart shows, in words; all its numbers stand in the file beside it."""
    name = ": ".join(filter(None, (figure.title, panel.title)))
    return f"{name}. {_summary(panel.chart, figure.runs)}"


def _summary(chart: Chart, runs: Sequence[str]) -> str:
    if isinstance(chart, Dots):
        found = [
            f"{runs[run]} {label} {percent(values[place][0])}"  # type: ignore[index]  # asked in the next line
            for place, label in enumerate(chart.labels)
            for run, values in chart.values.items()
            if values[place] is not None
        ]
    elif isinstance(chart, Lines):
        found = [
            f"{' '.join(filter(None, (runs[curve.run], curve.name)))} from {number(curve.points[0][1])}"
            f" to {number(curve.points[-1][1])} over {number(curve.points[-1][0])} {chart.x}"
            for curve in chart.curves
        ]
    elif isinstance(chart, Bars):
        found = [
            f"{runs[run]}: most often from {number(chart.edges[place])} to {number(chart.edges[place + 1])} {chart.x}"
            for run, counts in chart.counts.items()
            for place in [counts.index(max(counts))]
        ]
    else:
        found = [
            f"{label}, {runs[run]}: {', '.join(parts)}"
            for label, run, counts in chart.rows
            for parts in [[f"{count:,} {kind}" for kind, count in zip(chart.kinds, counts, strict=True)]]
        ]
    return "; ".join(found[:40])
