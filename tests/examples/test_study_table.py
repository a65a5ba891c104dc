"""The study's table pairs seed with seed and game with game, and says how sure it is."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

STUDY = Path(__file__).resolve().parents[2] / "examples" / "study_sdar"
sys.path.insert(0, str(STUDY))

from measured import read  # noqa: E402
from measured import write as keep  # noqa: E402
from table import compared, lines, outcomes  # noqa: E402


def write(study: Path, place: str, solved: dict[str, list[int]]) -> None:
    folder = study / place
    folder.mkdir(parents=True)
    tests = {
        split: {f"{split}/{game}": {"success": bool(value), "turns": 7} for game, value in enumerate(values)}
        for split, values in solved.items()
    }
    (folder / "results.json").write_text(json.dumps(tests))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    for test in ("test", "test_with_skills"):
        write(tmp_path, f"warm/{test}", {"valid_seen": [1, 0, 0, 0], "valid_unseen": [0, 0]})
    write(tmp_path, "grpo/0/test", {"valid_seen": [1, 1, 0, 0], "valid_unseen": [1, 0]})
    write(tmp_path, "grpo/2/test", {"valid_seen": [1, 1, 1, 0], "valid_unseen": [0, 0]})
    write(tmp_path, "sdar/1/test", {"valid_seen": [0, 0, 0, 0], "valid_unseen": [0, 0]})
    write(tmp_path, "sdar/2/test", {"valid_seen": [1, 1, 1, 1], "valid_unseen": [1, 1]})
    write(tmp_path, "skill_grpo/0/test", {"valid_seen": [1, 0, 0, 1], "valid_unseen": [1, 0]})
    write(tmp_path, "skill_grpo/0/test_with_skills", {"valid_seen": [1, 1, 1, 1], "valid_unseen": [1, 0]})
    write(tmp_path, "skill_grpo/1/test", {"valid_seen": [1, 1, 1, 1], "valid_unseen": [1, 1]})  # not done yet
    steps = [{"step": n, "episodes": 32 * n, "rollouts/success": n / 10, "time/step": 1.0} for n in (1, 2)]
    (tmp_path / "grpo/0/train").mkdir()
    (tmp_path / "grpo/0/train/figures.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return tmp_path


def test_rates_are_means_over_seeds_by_split(study: Path) -> None:
    table = {line.name: line for line in lines(outcomes(read([study])))}
    assert [*table] == ["warm", "warm, skills", "grpo", "sdar", "skill_grpo", "skill_grpo, skills"]
    grpo = table["grpo"]
    assert (grpo.seeds, grpo.seen, grpo.unseen, grpo.all) == (2, 62.5, 25.0, 50.0)
    assert (grpo.low < 50 < grpo.high, grpo.turns) == (True, 7)


def test_a_file_keeps_all_that_tables_and_pictures_need(study: Path) -> None:
    cells = read([study])
    assert [(cell.arm, cell.seed) for cell in cells] == [
        ("warm", 0),
        *(("grpo", seed) for seed in (0, 2)),
        *(("sdar", seed) for seed in (1, 2)),
        ("skill_grpo", 0),
    ]
    assert cells[1].figures == {"episodes": [32, 64], "rollouts/success": [0.1, 0.2]}
    keep(cells, study / "cells.jsonl")
    assert read([study / "cells.jsonl"]) == cells
    assert read([study / "cells.jsonl", study]) == cells


def test_of_a_cell_in_two_sources_the_first_counts(study: Path) -> None:
    keep(read([study]), study / "cells.jsonl")
    (study / "sdar/2/test/results.json").unlink()
    assert [cell.seed for cell in read([study]) if cell.arm == "sdar"] == [1]
    assert [cell.seed for cell in read([study, study / "cells.jsonl"]) if cell.arm == "sdar"] == [1, 2]


def test_only_equal_seeds_are_compared_and_the_warm_start_with_all(study: Path) -> None:
    found = outcomes(read([study]))
    both = compared(found, "sdar", "grpo")
    assert (both.seeds, both.difference) == (1, 50.0)
    against_warm = compared(found, "grpo", "warm")
    assert (against_warm.seeds, round(against_warm.difference, 6)) == (2, round(100 * 2 / 6, 6))
    assert against_warm.p_seeds == 0.5  # two pairs of seeds can say no more


def _found(gaps: Any) -> dict[str, dict[str, Any]]:
    seeds, games = gaps.shape
    names = {"seeds": [str(seed) for seed in range(seeds)], "games": [str(game) for game in range(games)]}
    return {"a": {**names, "solved_S_G": gaps}, "b": {**names, "solved_S_G": np.zeros_like(gaps)}}


@pytest.mark.parametrize("games", [9, 60])
def test_the_permutation_is_that_of_scipy(games: int) -> None:
    draw = np.random.default_rng(games)
    gaps = draw.choice([-1.0, 0.0, 1.0], p=[0.2, 0.4, 0.4], size=(3, games))
    found = compared(_found(gaps), "a", "b")
    for axis, p in ((0, found.p_games), (1, found.p_seeds)):
        means = gaps.mean(axis)
        theirs = stats.permutation_test(
            (means,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(0)
        )
        assert p == pytest.approx(theirs.pvalue, abs=0.01)


def test_the_interval_covers_what_other_seeds_and_games_would_show() -> None:
    draw = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        games = draw.normal(0.1, 0.3, size=(1, 120))
        seeds = draw.normal(0, 0.1, size=(8, 1))
        found = compared(_found(games + seeds + draw.normal(0, 0.3, size=(8, 120))), "a", "b")
        covered += found.low <= 10 <= found.high
    assert covered >= 51  # 95 % of 60 is 57; a bootstrap of eight seeds is a little narrow


def test_the_page_says_what_the_file_of_cells_holds() -> None:
    page = (STUDY.parents[1] / "docs" / "study.md").read_text(encoding="utf-8")
    cells = read([STUDY / "cells.jsonl"])
    assert f"{sum(cell.arm != 'warm' for cell in cells)} of 52 cells are done." in page
    for line in lines(outcomes(cells)):
        assert f"| {line.name} | {line.seeds} | {line.seen:.1f} | {line.unseen:.1f} | {line.all:.1f} |" in page


def test_figures_with_intervals_in_the_pages_conclusions_stand_in_its_tables() -> None:
    page = (STUDY.parents[1] / "docs" / "study.md").read_text(encoding="utf-8")
    tables = page.partition("<!-- tables -->")[2].partition("<!-- end of tables -->")[0]
    said = page.partition("## What came out")[2].partition("\n## ")[0]
    beside = page.partition("## Beside the paper")[2].partition("\n\n## ")[0]
    here = " ".join(row.split("|")[3] for row in beside.splitlines() if row.startswith("|"))
    figures = set(re.findall(r"[+-]?\d+\.\d\b(?!\.)|(?<=p )0\.\d+|(?<=p of )0\.\d+", said + here))
    assert len(figures) > 30
    assert not {figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", tables)}


def test_tables_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    draw = pytest.importorskip("draw", reason="matplotlib is not installed")
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- tables -->\nold\n<!-- end of tables -->\nbelow\n")
    draw.put(page, "new\n")
    draw.put(page, "newer\n")
    assert page.read_text() == "above\n<!-- tables -->\nnewer\n<!-- end of tables -->\nbelow\n"
    page.write_text("above\n<!-- tables -->\n")
    with pytest.raises(SystemExit, match="no place for the tables"):
        draw.put(page, "new\n")
