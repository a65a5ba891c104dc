"""Make tables and pictures of a study, as far as it is done.

    python examples/study_sdar/draw.py runs/study --out runs/study/figures
    python examples/study_sdar/draw.py examples/study_sdar/cells.jsonl --out docs/study --page docs/study.md    # ours

Several sources are drawn together; `--keep FILE` writes what was measured of their cells into one file, `--page FILE`
puts the tables into a page, between its two marks, instead of `tables.md`.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from arms import ARMS
from measured import WARM_START, Measured, read, write
from pictures import draw_curves, draw_kinds, draw_rates
from table import Compared, Line, compared, lines, outcomes

PAIRS = (
    *((name, "warm") for name in ARMS),
    ("sdar", "grpo"),
    *((name, "grpo") for name in ARMS if name not in {"grpo", "sdar"} and not name.startswith("sdar_")),
    *((name, "sdar") for name in ARMS if name.startswith("sdar_")),
    ("skill_grpo, skills", "grpo"),
    ("warm, skills", "warm"),
)
MAIN = ("grpo", "sdar", "grpo_opsd", "grpo_opsd_paper", "grpo_opsd_true", "opsd", "skill_sd", "rlsd", "skill_grpo")
MARKS = ("<!-- tables -->", "<!-- end of tables -->")
CURVES = (
    ("rollouts/success", MAIN, "success while training"),
    ("teacher/gap_mean", tuple(ARMS), "gap of the teacher, nats"),
    ("sdar/gate_mean", tuple(ARMS), "gate"),
)


def tables(cells: Sequence[Measured], table: Sequence[Line], pairs: Sequence[Compared]) -> str:
    """Return how much is done, the lines, and the comparisons, as markdown."""
    done = sum(cell.arm != WARM_START for cell in cells)
    text = [f"{done} of {sum(arm.seeds for arm in ARMS.values())} cells are done.", ""]
    text += ["| arm | seeds | seen | unseen | all | 95 % | turns |", "| --- | --- | --- | --- | --- | --- | --- |"]
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
    return "\n".join(text) + "\n"


def put(page: Path, text: str) -> None:
    """Put a text between the two marks of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise SystemExit(f"{page} has no place for the tables: write {MARKS[0]} and {MARKS[1]} into it")
    page.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


def main() -> None:
    """Draw what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of studies, or files of `--keep`")
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables and pictures")
    parser.add_argument("--keep", type=Path, help="file that gets what was measured of all cells")
    parser.add_argument("--page", type=Path, help="page that gets the tables, between its marks")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cells = read(options.sources)
    if options.keep:
        write(cells, options.keep)
    found = outcomes(cells)
    table = lines(found)
    pairs = [compared(found, name, base) for name, base in PAIRS if name in found and base in found]
    text = tables(cells, table, pairs)
    print(text, end="")
    if options.page:
        put(options.page, text)
    else:
        (options.out / "tables.md").write_text(text, encoding="utf-8")
    written = {"lines": [asdict(one) for one in table], "compared": [asdict(one) for one in pairs]}
    (options.out / "results.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    draw_rates(table, options.out / "rates.png")
    draw_kinds(found, MAIN, options.out / "kinds.png")
    for figure, names, label in CURVES:
        draw_curves(cells, figure, names, label, options.out / f"{figure.replace('/', '_')}.png")


if __name__ == "__main__":
    main()
