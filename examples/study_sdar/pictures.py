"""The pictures of a study: held-out success with intervals, kinds of tasks, and curves over the training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from arms import ARMS
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from measured import WARM_START, Measured
from table import Line

from agentgym_tok.evaluate.results import ALFWORLD_LABELS, label_of

mpl.use("Agg")

__all__ = ["draw_curves", "draw_kinds", "draw_rates"]

WINDOW = 8
"""Steps of a running mean."""

_COLORS = {name: plt.get_cmap("tab20")(place) for place, name in enumerate((WARM_START, *ARMS))}
"""Of an arm, the same in all pictures."""


def draw_rates(lines: Sequence[Line], file: Path) -> None:
    """Draw the lines of the table, best on top: held-out success, and its interval over seeds and games."""
    ordered = sorted(lines, key=lambda line: line.all)
    _, axes = plt.subplots(figsize=(7, 0.8 + 0.27 * len(ordered)))
    for place, line in enumerate(ordered):
        color = _COLORS[line.name.removesuffix(", skills")]
        axes.plot([line.low, line.high], [place, place], color=color, lw=3, solid_capstyle="round")
        axes.plot([line.all], [place], "o", color=color, mec="black", ms=6)
    axes.set_yticks(range(len(ordered)), [f"{line.name} ({line.seeds})" for line in ordered], fontsize=8)
    axes.set(xlabel="held-out success, %", xlim=(0, 100))
    axes.grid(alpha=0.3, axis="x")
    _save(file)


def draw_kinds(found: Mapping[str, Any], names: Sequence[str], file: Path) -> None:
    """Draw the success of each kind of task."""
    names = [name for name in (WARM_START, *names) if name in found]
    _, axes = plt.subplots(figsize=(9, 4))
    width, kinds = 0.8 / max(len(names), 1), [*ALFWORLD_LABELS.values()]
    for place, name in enumerate(names):
        kinds_G = np.array([label_of(task, ALFWORLD_LABELS) for task in found[name]["games"]])
        solved_G = found[name]["solved_S_G"].mean(0)
        rates = [100 * solved_G[kinds_G == kind].mean() if kind in kinds_G else 0.0 for kind in kinds]
        axes.bar(np.arange(len(rates)) + place * width, rates, width, label=name, color=_COLORS[name])
    axes.set_xticks(np.arange(len(kinds)) + 0.4, kinds)
    axes.set(ylabel="held-out success, %")
    axes.grid(alpha=0.3, axis="y")
    _beside(axes)
    _save(file)


def draw_curves(cells: Sequence[Measured], figure: str, names: Sequence[str], label: str, file: Path) -> None:
    """Draw a figure over the episodes that were played: the mean of the seeds, and their range."""
    _, axes = plt.subplots(figsize=(9, 4))
    for name in names:
        found = _curve(cells, name, figure)
        if found is None:
            continue
        episodes_N, values_S_N = found
        color = _COLORS[name]
        axes.plot(episodes_N, values_S_N.mean(0), label=f"{name} ({len(values_S_N)})", color=color)
        axes.fill_between(episodes_N, values_S_N.min(0), values_S_N.max(0), color=color, alpha=0.12, lw=0)
    axes.set(xlabel="training episodes", ylabel=label)
    axes.grid(alpha=0.3)
    _beside(axes)
    _save(file)


def _curve(cells: Sequence[Measured], name: str, figure: str) -> tuple[Any, Any] | None:
    """Return the episodes, and the running mean of a figure: float [seeds, steps]; None where nothing was measured."""
    runs = [cell.figures for cell in cells if cell.arm == name and figure in cell.figures]
    if not runs:
        return None
    longest = max(len(run["episodes"]) for run in runs)
    whole = [run for run in runs if len(run["episodes"]) == longest]
    weights = np.ones(min(WINDOW, longest)) / min(WINDOW, longest)
    smooth_S_N = np.array([np.convolve(run[figure], weights, "valid") for run in whole])
    return np.array(whole[0]["episodes"][len(weights) - 1 :]), smooth_S_N


def _beside(axes: Axes) -> None:
    """Put the names beside the picture, where they hide nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)


def _save(file: Path) -> None:
    plt.tight_layout()
    plt.savefig(file, dpi=130, metadata={"Software": None})
    plt.close()
