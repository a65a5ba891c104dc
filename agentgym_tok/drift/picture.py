"""A picture of what a template does, and of what a text pipeline would have trained wrongly (extra `plot`)."""

from pathlib import Path
from typing import TYPE_CHECKING

from agentgym_tok.drift.report import DriftReport
from agentgym_tok.drift.template import Probe, TemplateReport
from agentgym_tok.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_KEPT, _CHANGED, _REFUSED = "#2f7d6d", "#c8553d", "#8d99ae"
_INK, _FAINT, _RULE = "#22262b", "#6b7280", "#e3e6ea"
_MOST_DETAIL, _FEWEST_ROWS = 42, 6


def draw(path: str | Path, template: TemplateReport, report: DriftReport | None = None) -> None:
    """Write a picture: the probes of a template and, beside them, the drifts of a report.

    Args:
        path: A file whose name ends in `.png`, `.svg` or `.pdf`.
        template: The probes.
        report: The drifts, by class and along the turns; None leaves them out.

    Raises:
        MissingExtra: matplotlib is not installed.
        ConfigError: matplotlib does not know the kind of file, or cannot write it.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  # extra `plot`
        from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415
    except ImportError as error:
        fix = 'pip install "agentgym-tok[plot]"'
        raise MissingExtra("pictures need matplotlib", where="drift", fix=fix) from error
    height = 0.3 * len(template.probes) + 1.4
    layout = ConstrainedLayoutEngine(w_pad=0.2, h_pad=0.15, wspace=0.04)
    figure = Figure(figsize=(8 if report is None else 15, height), dpi=150, layout=layout, facecolor="white")
    name = Path(template.reference).name
    if report is None:
        _probes(figure.subplots(), template)
        title = f"{name}: what its chat template does to a conversation that grows"
    else:
        left, bars, places = figure.subplots(1, 3, width_ratios=[7.6, 3, 3.8])
        _probes(left, template)
        _classes(bars, report)
        _turns(places, report)
        share = f"{report.wrong:,} of {report.sampled:,} sampled ids ({report.rate:.1%})"
        title = f"{name}: a text pipeline trains {share} wrongly, {report.altered:,} of them as other ids or never"
    figure.suptitle(title, x=0.015, ha="left", fontsize=13, fontweight="bold", color=_INK)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        expected = "a name that ends in .png, .svg or .pdf, in a folder that is there"
        raise ConfigError("the picture cannot be written", where=path, got=str(error), expected=expected) from error


def _probes(axes: "Axes", template: TemplateReport) -> None:
    """Draw one line for each probe: its name, two tiles, and what it found."""
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(len(template.probes) - 0.4, -1.1)
    for place, heading in ((4.0, "earlier ids"), (5.15, "bridge")):
        axes.text(place, -0.75, heading, ha="center", va="center", fontsize=9, color=_FAINT)
    for row, probe in enumerate(template.probes):
        axes.axhline(row + 0.5, color=_RULE, linewidth=0.8, zorder=0)
        axes.text(0, row, probe.name, va="center", fontsize=9.5, color=_INK)
        _tile(axes, 4.0, row, *_past(probe))
        if probe.bridge:
            _tile(axes, 5.15, row, *(("built", _KEPT) if probe.bridge == "ok" else ("refused", _REFUSED)))
        detail = probe.detail if len(probe.detail) <= _MOST_DETAIL else f"{probe.detail[:_MOST_DETAIL]}..."
        if probe.bridge not in ("", "ok"):
            detail = detail or probe.bridge
        axes.text(5.85, row, detail, va="center", fontsize=8, color=_FAINT, parse_math=False)


def _past(probe: Probe) -> tuple[str, str]:
    if probe.preserves is None:
        return "refused", _REFUSED
    return ("kept", _KEPT) if probe.preserves else ("changed", _CHANGED)


def _tile(axes: "Axes", place: float, row: int, word: str, color: str) -> None:
    box = {"boxstyle": "round,pad=0.25", "facecolor": color, "edgecolor": "none"}
    axes.text(
        place, row, f"{word:^7}", ha="center", va="center", fontsize=7.5, family="monospace", color="white", bbox=box
    )


def _classes(axes: "Axes", report: DriftReport) -> None:
    """Draw the ids of each class as a bar."""
    kinds = report.by_kind()
    counts = list(kinds.values())
    axes.barh(range(len(kinds)), counts, color=_CHANGED, height=0.55)
    top = max(counts, default=1)
    for row, (kind, count) in enumerate(kinds.items()):
        drifts = len(report.of_kind(kind))
        axes.text(count + top * 0.03, row, f"{count:,} ({drifts:,}\u00d7)", va="center", fontsize=8.5, color=_INK)
    axes.set_yticks(range(len(kinds)), [kind.replace("_", " ") for kind in kinds], fontsize=9.5, color=_INK)
    axes.set_xlim(0, top * 1.5)
    axes.set_title("ids that differ, and drifts (\u00d7)", loc="left", fontsize=10, color=_INK)
    _plain(axes, len(kinds))


def _turns(axes: "Axes", report: DriftReport) -> None:
    """Draw each drift as a dot in the line of its class, at its turn."""
    rows = {kind: row for row, kind in enumerate(report.by_kind())}
    turns = [drift.turn for drift in report.drifts]
    sizes = [min(900.0, 40 + 4 * drift.count) for drift in report.drifts]
    lines = [rows[drift.kind] for drift in report.drifts]
    axes.scatter(turns, lines, s=sizes, color=_CHANGED, alpha=0.35, linewidths=0)
    axes.set_yticks([])
    last = max([*turns, 1])
    axes.set_xlim(-0.8, last + 0.8)
    axes.set_xticks(range(0, last + 1, 1 + last // 8))
    axes.set_xlabel("turn", fontsize=9, color=_INK)
    axes.set_title("in which turn; the larger, the more ids", loc="left", fontsize=10, color=_INK)
    _plain(axes, len(rows))


def _plain(axes: "Axes", rows: int) -> None:
    axes.set_ylim(max(rows, _FEWEST_ROWS) - 0.4, -0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.tick_params(axis="both", length=0, labelcolor=_INK, labelsize=9)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=_RULE)
    if not rows:
        axes.text(0.5, 0.5, "no drift", transform=axes.transAxes, ha="center", color=_KEPT, fontsize=12)
