"""Curves of training: success, return, loss, and what the objective says of itself, over rollouts."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from agentgym_tok.evaluate.report.charts import Curve, Figure, Lines, Panel
from agentgym_tok.evaluate.report.sources import Run
from agentgym_tok.evaluate.report.tables import Cell, Column, Table

__all__ = ["LAST", "points_of", "training_figures", "training_table"]

_MOST_POINTS = 160

LAST = 10
"""Steps over which beginning and end are averaged."""

_FIGURES = (
    ("success", "Success", (("rollouts/success", "rollouts"), ("evaluation/success", "held-out tasks")), True),
    ("return", "Return of a rollout", (("rollouts/return", ""),), False),
    ("loss", "Loss", (("loss", ""),), False),
    ("gap", "Gap between teacher and policy", (("teacher/gap_mean", ""),), False),
    ("gate", "Gate", (("sdar/gate_mean", "mean"), ("sdar/gate_active", "share above one half")), True),
    ("entropy", "Entropy of the policy", (("entropy/mean", ""),), False),
    ("gradient", "Norm of the gradient", (("update/grad_norm", ""),), False),
    ("turns", "Turns of a rollout", (("rollouts/turns", ""),), False),
    ("failed", "Rollouts that failed", (("rollouts/failed", ""),), True),
)
"""Name, title, what is drawn under which name, and whether that is a share."""


def training_figures(runs: Sequence[Run], names: tuple[str, ...]) -> Iterator[Figure]:
    """Yield the curves that any run has figures of; their axis is the number of rollouts."""
    for name, title, drawn, share in _FIGURES:
        found = [
            (run.number, word, points_of(run.steps, key), key.startswith("evaluation/"))
            for key, word in drawn
            for run in runs
        ]
        found = [each for each in found if len(each[2]) > 1 or (each[3] and each[2])]
        if not found or (name == "failed" and not any(y for _, _, points, _ in found for _, y in points)):
            continue
        curves, whole, widest = [], [], 1
        for number, word, points, marked in found:
            width = 1 if marked else -(-len(points) // _MOST_POINTS)
            widest = max(widest, width)
            curves.append(_curve(number, word, points, width, marked=marked))
            whole.append(Curve(number, word, points))
        note = "In percent. " if share else ""
        words = [word for _, word in drawn if any(word == one for _, one, _, _ in found)]
        if len(words) > 1:
            note += f"Solid: {words[0]}. Dashed: {words[1]}. "
        if widest > 1:
            note += f"Means of up to {widest} steps; bands from their lowest to their highest."
        lines = Lines(tuple(curves), "rollouts", share=share)
        full = (Panel("", Lines(tuple(whole), "rollouts", share=share)),)
        yield Figure(f"training-{name}", title, (Panel("", lines),), names, note.strip(), full)


def training_table(runs: Sequence[Run]) -> Table | None:
    """Return where training runs began and where they are; None where no run is one."""
    rows: list[tuple[Cell, ...]] = []
    keys = [
        (key, f"{title.lower()}{f': {word}' if word else ''}") for _, title, all_, _ in _FIGURES for key, word in all_
    ]
    for run in (run for run in runs if run.steps):
        for key, words in keys:
            values = [y for _, y in points_of(run.steps, key)]
            if values:
                ends = fmean(values[:LAST]), fmean(values[-LAST:])
                rows.append((words, run.name, len(values), *ends, min(values), max(values)))
    columns = (
        Column("figure", "figure"),
        Column("run", "run"),
        Column("steps", "steps", "number"),
        Column("first", f"mean of first {LAST}", "number"),
        Column("last", f"mean of last {LAST}", "number"),
        Column("lowest", "lowest", "number"),
        Column("highest", "highest", "number"),
    )
    return Table("training", "From beginning to end", columns, tuple(rows)) if rows else None


def points_of(steps: Sequence[Mapping[str, Any]], key: str) -> tuple[tuple[float, float], ...]:
    """Return number of rollouts and value, of steps that have one."""
    return tuple(
        (float(step["episodes"]), float(step[key]))
        for step in steps
        if isinstance(step.get(key), int | float) and isinstance(step.get("episodes"), int | float)
    )


def _curve(number: int, name: str, points: Sequence[tuple[float, float]], width: int, *, marked: bool) -> Curve:
    """Return a curve with a point for each `width` neighbours."""
    some = [points[place : place + width] for place in range(0, len(points), width)]
    means = tuple((fmean(x for x, _ in each), fmean(y for _, y in each)) for each in some)
    band = tuple((min(y for _, y in each), max(y for _, y in each)) for each in some) if width > 1 else ()
    return Curve(number, name, means, band, marked)
