"""What a report can be made of: evaluations, training runs, and clear words where there is neither."""

from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing
from agentgym_tok.evaluate.report.sources import read_runs


def test_runs_are_called_by_the_ends_of_their_paths(trained: Path, tmp_path: Path) -> None:
    for name in ("a/run", "b/run", "b/r u n"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "figures.jsonl").write_text('{"step": 1, "episodes": 2}\n')
    found = read_runs([tmp_path / "a/run", tmp_path / "b/run", trained])
    assert [run.name for run in found] == ["a/run", "b/run", f"{trained.parent.name}/sdar"]
    assert [run.number for run in found] == [0, 1, 2]
    assert [run.slug for run in read_runs([tmp_path / "b/run", tmp_path / "b/r u n"])] == ["run", "r-u-n"]


def test_files_of_runs_do_not_collide(tmp_path: Path) -> None:
    for name in ("r n", "r+n", "R-N"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "figures.jsonl").write_text("{}\n")
    slugs = [run.slug.lower() for run in read_runs([tmp_path / "r n", tmp_path / "r+n", tmp_path / "R-N"])]
    assert len(set(slugs)) == 3


def test_the_line_that_is_being_written_is_left_out(trained: Path, tmp_path: Path) -> None:
    (run,) = read_runs([trained])
    assert len(run.steps) == 400
    assert run.results is None
    (tmp_path / "figures.jsonl").write_text('{"step": 1}\n{"ste\n{"step": 3}\n')
    with pytest.raises(DataCorrupt, match="line 2"):
        read_runs([tmp_path])


def test_results_can_be_named_by_their_file(write_results: Any, result: Any, tmp_path: Path) -> None:
    folder = write_results(tmp_path / "run", [result(task="t")])
    (run,) = read_runs([folder / "results.json"])
    assert (run.name, run.folder) == ("run", folder)
    assert not run.traced


def test_what_is_no_run_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="nothing to report"):
        read_runs([tmp_path])
    with pytest.raises(ConfigError, match="different runs"):
        read_runs([trained, trained / "."])
    with pytest.raises(ConfigError, match="no run"):
        read_runs([])
