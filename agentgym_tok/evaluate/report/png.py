"""Charts as PNG for slides and papers, by matplotlib (extra `plot`)."""

import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentgym_tok.errors import MissingExtra
from agentgym_tok.evaluate.report.charts import Bars, Dots, Figure, Lines, Panel, Shares
from agentgym_tok.evaluate.report.scales import height_of, range_of, ticks, ticks_of
from agentgym_tok.evaluate.report.text import one_line, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["RUN_COLOURS", "figure_png", "require_matplotlib"]

RUN_COLOURS = ("#0072b2", "#d55e00", "#00875f", "#b0508b", "#3b9bd6", "#b97f00", "#555b63", "#7a5195")
"""Of runs, after Okabe and Ito: they differ for those who see few colours, and the style sheet has them too."""

_ENDINGS = ("#1f6f9f", "#cfcabd", "#e0a526", "#9c2f5f")
_INK, _FAINT, _RULE = "#20242a", "#626a74", "#e2dfd8"
_MARKS = ("o", "s", "^", "D")
_ACROSS, _INCHES = 3, 4.4


def require_matplotlib() -> "type[Canvas]":
    """Return matplotlib's figure.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        from matplotlib.figure import Figure as Drawn  # noqa: PLC0415  # extra `plot`
    except ImportError as error:
        fix = 'pip install "agentgym-tok[plot]", or leave pictures out by --no-pictures'
        raise MissingExtra("pictures need matplotlib", where="report", fix=fix) from error
    return Drawn


def figure_png(figure: Figure) -> bytes:
    """Draw a figure; equal figures give equal bytes where matplotlib is the same."""
    across = min(_ACROSS, len(figure.panels))
    down = -(-len(figure.panels) // across)
    tall = max(map(_height, figure.panels))
    size = (_INCHES * across, tall * down + 0.6)
    canvas = require_matplotlib()(figsize=size, dpi=160, layout="constrained", facecolor="white")
    all_axes = canvas.subplots(down, across, squeeze=False).ravel()
    for axes in all_axes[len(figure.panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(all_axes, figure.panels, strict=False):
        draw: dict[type, Callable[..., None]] = {Dots: _dots, Lines: _lines, Bars: _bars, Shares: _shares}
        _plain(axes)
        draw[type(panel.chart)](axes, panel.chart, figure)
        axes.set_title(one_line(visible(panel.title), 60), loc="left", fontsize=10, color=_INK, parse_math=False)
    _legend(canvas, figure)
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # its letters are not everybody's
        canvas.savefig(made, format="png", metadata={"Software": None})
    return made.getvalue()


def _height(panel: Panel) -> float:
    chart = panel.chart
    if isinstance(chart, Dots):
        return 0.9 + len(chart.labels) * (0.14 * len(chart.values) + 0.12)
    return 0.6 + 0.3 * len(chart.rows) if isinstance(chart, Shares) else 2.7


def _legend(canvas: "Canvas", figure: Figure) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    handles: list[Line2D | Patch]
    if figure.kinds:
        names = list(figure.kinds)
        handles = [Patch(color=_ENDINGS[place]) for place in range(len(names))]
    else:
        names = [one_line(visible(figure.runs[run]), 60) for run in figure.shown]
        handles = [Line2D([], [], color=_colour(run), marker=_MARKS[run % 4], markersize=5) for run in figure.shown]
    box = canvas.legend(handles, names, loc="outside upper left", ncols=4, frameon=False, fontsize=9)
    box.set_title(figure.title)
    box.get_title().set(color=_INK, fontweight="bold", fontsize=11)
    box._legend_box.align = "left"  # type: ignore[attr-defined]  # there is no other way
    for text in box.get_texts():
        text.set_parse_math(False)
        text.set_color(_INK)


def _plain(axes: "Axes") -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.tick_params(axis="both", length=0, labelcolor=_INK, labelsize=8.5)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_RULE, linewidth=0.8)


def _dots(axes: "Axes", chart: Dots, figure: Figure) -> None:
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=_RULE, linewidth=0.8)
    count = len(chart.values)
    for order, (run, values) in enumerate(chart.values.items()):
        for place, found in enumerate(values):
            if found is not None:
                y = place + (order - (count - 1) / 2) * 0.8 / max(count, 2)
                mean, low, high = (100 * value for value in found)
                axes.plot([low, high], [y, y], color=_colour(run), linewidth=1.6, alpha=0.6)
                axes.plot([mean], [y], color=_colour(run), marker=_MARKS[run % 4], markersize=5)
    axes.set_xlim(-103 if chart.signed else -2, 102)
    axes.set_xticks([-100, -50, 0, 50, 100] if chart.signed else [0, 25, 50, 75, 100])
    if chart.signed:
        axes.axvline(0, color=_FAINT, linewidth=1)
    # As many rows as the longest panel has, so that rows are equally high in all.
    most = max(len(panel.chart.labels) for panel in figure.panels if isinstance(panel.chart, Dots))
    axes.set_ylim(most - 0.45, -0.55)
    axes.set_yticks(range(len(chart.labels)), [one_line(visible(label), 24) for label in chart.labels])
    _no_math(axes)


def _lines(axes: "Axes", chart: Lines, _figure: Figure) -> None:
    x, y = range_of(chart)
    scale = 100 if chart.share else 1
    names = list(dict.fromkeys(curve.name for curve in chart.curves))
    for order, curve in enumerate(chart.curves):
        whiskers = curve.marked and bool(curve.band)
        aside = (x[1] - x[0]) * 0.009 * (order - (len(chart.curves) - 1) / 2) if whiskers else 0.0
        xs = [place + aside for place, _ in curve.points]
        lows, highs = ([scale * ends[side] for ends in curve.band] for side in (0, 1))
        if whiskers:
            axes.vlines(xs, lows, highs, color=_colour(curve.run), alpha=0.55, linewidth=1.6)
        elif len(curve.band) > 1:
            axes.fill_between(xs, lows, highs, color=_colour(curve.run), alpha=0.15, linewidth=0)
        axes.plot(
            xs,
            [scale * value for _, value in curve.points],
            color=_colour(curve.run),
            linestyle="-" if names.index(curve.name) == 0 else "--",
            marker=_MARKS[curve.run % 4] if curve.marked else None,
            markersize=4.5,
            linewidth=1.6,
        )
    room = (x[1] - x[0]) * 0.03
    axes.set_xlim(x[0] - room, x[1] + room)
    axes.set_ylim(scale * y[0] - (2 if chart.share else 0), scale * y[1] + (2 if chart.share else 0))
    axes.set_xlabel(chart.x, fontsize=8.5, color=_FAINT)
    if chart.whole and x[1] - x[0] < 10:
        axes.set_xticks(range(int(x[0] + 0.5), int(x[1]) + 1))


def _bars(axes: "Axes", chart: Bars, _figure: Figure) -> None:
    for run, counts in chart.counts.items():
        shares = [100 * count / sum(counts) for count in counts]
        axes.stairs(shares, chart.edges, color=_colour(run), fill=True, alpha=0.2)
        axes.stairs(shares, chart.edges, color=_colour(run), linewidth=1.6)
    axes.set_xticks(ticks_of(chart))
    top = 100 * height_of(chart)
    axes.set_ylim(0, top * 1.05)
    axes.set_yticks(ticks(0, top, 3), [f"{value:g} %" for value in ticks(0, top, 3)])
    axes.set_xlabel(chart.x, fontsize=8.5, color=_FAINT)


def _shares(axes: "Axes", chart: Shares, figure: Figure) -> None:
    several = len({run for _, run, _ in chart.rows}) > 1
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    for row, (_, _, counts) in enumerate(chart.rows):
        left = 0.0
        for kind, count in enumerate(counts):
            wide = 100 * count / sum(counts)
            axes.barh([row], [wide], left=left, color=_ENDINGS[kind], height=0.72)
            if wide > 4:
                colour = "white" if kind in (0, 3) else _INK
                axes.text(left + wide / 2, row, f"{count:,}", ha="center", va="center", fontsize=8, color=colour)
            left += wide
    names = [f"{label} \u00b7 {figure.runs[run]}" if several else label for label, run, _ in chart.rows]
    axes.set_xlim(0, 100)
    axes.set_xticks([])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [one_line(visible(name), 40) for name in names])
    _no_math(axes)


def _no_math(axes: "Axes") -> None:
    for label in axes.get_yticklabels():
        label.set_parse_math(False)


def _colour(run: int) -> str:
    return RUN_COLOURS[run % len(RUN_COLOURS)]
