"""Make tables and pictures of a study, as far as it is done.

    python examples/study_sdar/draw.py runs/study --out runs/study/figures
    python examples/study_sdar/draw.py examples/study_sdar/cells.jsonl --out docs/study     # of the cells that we ran

Several sources are drawn together; `--keep FILE` writes what was measured of their cells into one file.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from arms import ARMS
from matplotlib import pyplot as plt
from measured import Measured, read, write
from table import compared, lines, outcomes

mpl.use("Agg")

PAIRS = (
    ("grpo", "warm"),
    ("sdar", "warm"),
    ("sdar", "grpo"),
    *((name, "grpo") for name in ARMS if name not in {"grpo", "sdar"} and not name.startswith("sdar_")),
    *((name, "sdar") for name in ARMS if name.startswith("sdar_")),
    ("skill_grpo, skills", "grpo"),
    ("warm, skills", "warm"),
)
KINDS = {
    "pick_and_place_simple": "Pick",
    "look_at_obj_in_light": "Look",
    "pick_clean_then_place_in_recep": "Clean",
    "pick_heat_then_place_in_recep": "Heat",
    "pick_cool_then_place_in_recep": "Cool",
    "pick_two_obj_and_place": "Pick2",
}
MAIN = ("grpo", "sdar", "grpo_opsd", "grpo_opsd_paper", "grpo_opsd_true", "opsd", "skill_sd", "rlsd", "skill_grpo")
WINDOW = 8
"""Steps of a running mean."""


def curves(cells: Sequence[Measured], figure: str) -> dict[str, tuple[Any, Any]]:
    """Return for each arm the episodes, and the running mean of a figure: float [seeds, steps]."""
    found = {}
    for name in ARMS:
        runs = [cell.figures for cell in cells if cell.arm == name and figure in cell.figures]
        longest = max((len(run["episodes"]) for run in runs), default=0)
        whole = [run for run in runs if len(run["episodes"]) == longest]
        if whole:
            weights = np.ones(min(WINDOW, longest)) / min(WINDOW, longest)
            smooth_S_N = np.array([np.convolve(run[figure], weights, "valid") for run in whole])
            found[name] = (np.array(whole[0]["episodes"][len(weights) - 1 :]), smooth_S_N)
    return found


def draw_curves(cells: Sequence[Measured], out: Path, figure: str, label: str, names: tuple[str, ...]) -> None:
    """Draw a figure over the episodes that were played: the mean of the seeds, and their range."""
    plotted = {name: curve for name, curve in curves(cells, figure).items() if name in names}
    if not plotted:
        return
    _, axes = plt.subplots(figsize=(7, 4))
    for name, (episodes_N, values_S_N) in plotted.items():
        (line,) = axes.plot(episodes_N, values_S_N.mean(0), label=f"{name} ({len(values_S_N)})")
        axes.fill_between(episodes_N, values_S_N.min(0), values_S_N.max(0), color=line.get_color(), alpha=0.12, lw=0)
    axes.set(xlabel="training episodes", ylabel=label)
    axes.legend(fontsize=7, ncols=2)
    axes.grid(alpha=0.3)
    _save(out / f"{figure.replace('/', '_')}.png")


def draw_kinds(found: Mapping[str, Any], out: Path) -> None:
    """Draw the success of each kind of task."""
    names = [name for name in ("warm", *MAIN) if name in found]
    _, axes = plt.subplots(figsize=(8, 4))
    width = 0.8 / max(len(names), 1)
    for place, name in enumerate(names):
        kinds = [
            next((label for kind, label in KINDS.items() if kind in task), "other") for task in found[name]["games"]
        ]
        solved_G = found[name]["solved_S_G"].mean(0)
        rates = [100 * solved_G[[kind == label for kind in kinds]].mean() for label in KINDS.values() if label in kinds]
        axes.bar(np.arange(len(rates)) + place * width, rates, width, label=name)
    axes.set_xticks(np.arange(len(KINDS)) + 0.4, list(KINDS.values()))
    axes.set(ylabel="held-out success, %")
    axes.legend(fontsize=7, ncols=3)
    axes.grid(alpha=0.3, axis="y")
    _save(out / "kinds.png")


def _save(file: Path) -> None:
    plt.tight_layout()
    plt.savefig(file, dpi=130, metadata={"Software": None})
    plt.close()


def write_tables(found: Mapping[str, Any], out: Path) -> None:
    """Write `tables.md`, and the same as `results.json`."""
    table = lines(dict(found))
    pairs = [compared(dict(found), name, base) for name, base in PAIRS if name in found and base in found]
    text = ["| arm | seeds | seen | unseen | all | 95 % | turns |", "| --- | --- | --- | --- | --- | --- | --- |"]
    text += [
        f"| {one.name} | {one.seeds} | {one.seen:.1f} | {one.unseen:.1f} | {one.all:.1f} "
        f"| {one.low:.1f} to {one.high:.1f} | {one.turns:.1f} |"
        for one in table
    ]
    text += [
        "",
        "| difference | pairs | points | 95 % | p, games | p, seeds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    text += [
        f"| {one.name} | {one.seeds} | {one.difference:+.1f} | {one.low:+.1f} to {one.high:+.1f} "
        f"| {one.p_games:.2g} | {one.p_seeds:.2g} |"
        for one in pairs
    ]
    (out / "tables.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    written = {"lines": [asdict(one) for one in table], "compared": [asdict(one) for one in pairs]}
    (out / "results.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print("\n".join(text))


def main() -> None:
    """Draw what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of studies, or files of `--keep`")
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables and pictures")
    parser.add_argument("--keep", type=Path, help="file that gets what was measured of all cells")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cells = read(options.sources)
    if options.keep:
        write(cells, options.keep)
    found = outcomes(cells)
    write_tables(found, options.out)
    draw_kinds(found, options.out)
    draw_curves(cells, options.out, "rollouts/success", "success while training", MAIN)
    for figure, label in (("teacher/gap_mean", "gap of the teacher, nats"), ("sdar/gate_mean", "gate")):
        draw_curves(cells, options.out, figure, label, tuple(ARMS))


if __name__ == "__main__":
    main()
