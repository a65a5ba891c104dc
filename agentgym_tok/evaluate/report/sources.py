"""The runs that a report is of: results of evaluations, figures of training, or both."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym_tok.errors import DataCorrupt, DataMissing
from agentgym_tok.evaluate.report.text import file_name
from agentgym_tok.evaluate.run_names import run_names
from agentgym_tok.evaluate.run_results import RunResults
from agentgym_tok.trace.shard import shard_paths

__all__ = ["Run", "read_runs"]

_RESULTS, _FIGURES, _CONFIG = "results.json", "figures.jsonl", "config.json"


@dataclass(frozen=True, slots=True)
class Run:
    """Hold what a run left.

    Args:
        name: The shortest end of its path that tells it from the others.
        slug: Its name in files of the report.
        number: Its place in the report; colours follow it.
        folder: Where it stands.
        results: Of an evaluation.
        steps: Lines of `figures.jsonl`, of a training run; empty elsewhere.
        config: Of a training run.
    """

    name: str
    slug: str
    number: int
    folder: Path
    results: RunResults | None
    steps: tuple[Mapping[str, Any], ...] = ()
    config: Mapping[str, Any] | None = None

    @property
    def traced(self) -> bool:
        """Whether its trace is there."""
        return bool(shard_paths(self.folder))

    @property
    def view(self) -> str:
        """The viewer's file, seen from the report."""
        return f"traces/{self.slug}.html"


def read_runs(runs: Sequence[str | Path]) -> list[Run]:
    """Read runs.

    Args:
        runs: Folders of runs, or their `results.json`.

    Raises:
        ConfigError: A run is named twice, or none is.
        DataMissing: A folder holds neither results nor figures.
        DataCorrupt: What it holds cannot be read.
    """
    found: list[Run] = []
    for number, (folder, name) in enumerate(run_names(runs)):
        found.append(_read(folder, name, file_name(name, [run.slug for run in found]), number))
    return found


def _read(folder: Path, name: str, short: str, number: int) -> Run:
    steps = _steps(folder / _FIGURES)
    if not steps and not (folder / _RESULTS).is_file():
        raise DataMissing(
            "there is nothing to report",
            where=str(folder),
            expected=f"{_RESULTS} of `agentgym-tok eval`, or {_FIGURES} of `agentgym-tok train`",
            fix=f"agentgym-tok eval ... --resume --out {folder} makes results of a trace",
        )
    results = RunResults.read(folder) if (folder / _RESULTS).is_file() else None
    return Run(name, short, number, folder, results, steps, _config(folder / _CONFIG) if steps else None)


def _steps(file: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the lines that were written whole; of a run that goes on, the last one may not be."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    found: list[Mapping[str, Any]] = []
    for place, line in enumerate(lines):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if place < len(lines) - 1:
                where = f"{file}, line {place + 1}"
                raise DataCorrupt("a line of figures is no JSON", where=where, got=str(error)) from error
    return tuple(found)


def _config(file: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise DataCorrupt("a run's configuration is no JSON", where=str(file), got=str(error)) from error
    return found
