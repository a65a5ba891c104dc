"""What cells came to, as records: read from the folders of a study, or from the file that keeps many in little room."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arms import ARMS

__all__ = ["FIGURES", "TEST_FOLDERS", "WARM_START", "Measured", "read", "write"]

FIGURES = ("rollouts/success", "teacher/gap_mean", "sdar/gate_mean")
"""What is drawn of the training, step by step; `episodes` counts its rollouts."""
TEST_FOLDERS = ("test", "test_with_skills")
"""Folders of the tests of a cell: without skills in the prompts, and with them."""
WARM_START = "warm"
"""Folder, and name in tables, of the model that all arms begin with."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold what is measured of a cell.

    Args:
        arm: Its name; `warm` is the model that all arms begin with.
        seed: Of the cell.
        tests: By the name of the test and the split: of each game how often it was solved, and its turns.
        figures: `episodes` and each of `FIGURES` that the arm has, step by step.
    """

    arm: str
    seed: int
    tests: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]
    figures: Mapping[str, Sequence[float]]


def read(sources: Iterable[Path]) -> list[Measured]:
    """Read all cells that are done, in the order of `ARMS`.

    Args:
        sources: Folders of studies, and files that `write` made; of the same cell the first one counts.
    """
    found: dict[tuple[str, int], Measured] = {}
    for source in sources:
        for cell in _of_folder(source) if source.is_dir() else _of_file(source):
            found.setdefault((cell.arm, cell.seed), cell)
    order = [WARM_START, *ARMS]
    return sorted(found.values(), key=lambda cell: (order.index(cell.arm), cell.seed))


def write(cells: Sequence[Measured], file: Path) -> None:
    """Write cells to a file: a line with the names of the games, and one for each cell."""
    games: dict[str, list[str]] = {}
    for split, tasks in (item for cell in cells for test in cell.tests.values() for item in test.items()):
        if games.setdefault(split, sorted(tasks)) != sorted(tasks):
            raise SystemExit(
                f"cells were tested on other games of {split}: those of --reduced stand in no table of others"
            )
    lines: list[dict[str, Any]] = [{"games": games}]
    for cell in cells:
        tests = {
            name: {
                split: [[_short(values[task][place]) for task in games[split]] for place in (0, 1)]
                for split, values in test.items()
            }
            for name, test in cell.tests.items()
        }
        figures = {name: [round(value, 4) for value in values] for name, values in cell.figures.items()}
        lines.append({"arm": cell.arm, "seed": cell.seed, "tests": tests, "figures": figures})
    file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")


def _short(value: float) -> float:
    return int(value) if value == int(value) else round(value, 4)


def _of_file(file: Path) -> list[Measured]:
    head, *lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [
        Measured(
            line["arm"],
            line["seed"],
            {
                name: {
                    split: {
                        task: (solved, turns) for task, solved, turns in zip(head["games"][split], *both, strict=True)
                    }
                    for split, both in test.items()
                }
                for name, test in line["tests"].items()
            },
            line["figures"],
        )
        for line in lines
    ]


def _of_folder(study: Path) -> list[Measured]:
    places = [(WARM_START, 0, study / WARM_START)]
    places += [(arm, int(folder.name), folder) for arm in ARMS for folder in sorted((study / arm).glob("*"))]
    cells = []
    for arm, seed, folder in places:
        wanted = TEST_FOLDERS if arm == WARM_START else [TEST_FOLDERS[skills] for skills in ARMS[arm].tests]
        files = {name: folder / name / "results.json" for name in wanted}
        if all(file.is_file() for file in files.values()):
            tests = {name: _test(json.loads(file.read_text(encoding="utf-8"))) for name, file in files.items()}
            cells.append(Measured(arm, seed, tests, _figures(folder / "train" / "figures.jsonl")))
    return cells


def _test(results: Mapping[str, Any]) -> dict[str, dict[str, tuple[float, float]]]:
    return {
        split: {task: (float(one["success"]), float(one["turns"])) for task, one in tasks.items()}
        for split, tasks in results.items()
    }


def _figures(file: Path) -> dict[str, list[float]]:
    if not file.is_file():
        return {}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found = {name: [line.get(name) for line in lines] for name in ("episodes", *FIGURES)}
    return {name: values for name, values in found.items() if None not in values}
