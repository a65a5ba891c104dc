"""Results as papers print them: one line for each run, kinds of task side by side."""

from collections.abc import Mapping
from types import MappingProxyType

from agentgym_tok.evaluate.run_results import PartResults, RunResults
from agentgym_tok.evaluate.scores import ALL, Score

__all__ = ["PAPER_NAMES", "paper_table"]

PAPER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "nq": "NQ",
        "triviaqa": "TriviaQA",
        "popqa": "PopQA",
        "hotpotqa": "HotpotQA",
        "2wikimultihopqa": "2Wiki",
        "musique": "MuSiQue",
        "bamboogle": "Bamboogle",
    }
)
"""The names that papers give the datasets of Search-QA."""

_EM = "em"


def paper_table(runs: Mapping[str, RunResults]) -> str:
    """Return a markdown table of runs, with the columns of table 1 of SDAR's paper (arXiv 2605.15155).

    A part with kinds of task has a column for each of them, then `All`, the rate over all episodes; where it is scored
    by exact match, `Avg`, the mean of the kinds' means (macro average), in its place, as papers report Search-QA. A
    part with a score has that and the success. All are in percent; intervals stand in `results.json`.

    Args:
        runs: By the names of the lines; the first one's parts make the columns.
    """
    first = next(iter(runs.values()))
    columns = [(part, column) for part in first.parts for column in _cells(first, part)]
    lines = [
        ["", *(f"{part.name}: {column}" if len(first.parts) > 1 else column for part, column in columns)],
        ["---", *("---:" for _ in columns)],
        *([name, *(_cells(run, part).get(column, "") for part, column in columns)] for name, run in runs.items()),
    ]
    notes = [
        f"{part.name}: {part.source}, {part.prompting}, {part.tasks} tasks"
        + (f" with {part.samples} samples each" if part.samples > 1 else "")
        for part in first.parts
    ]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{table}\n\nIn percent. {'; '.join(notes)}. All: over episodes; Avg: mean over kinds of task.\n"


def _cells(run: RunResults, part: PartResults) -> dict[str, str]:
    """Return what one line says of a part, by column."""
    scores = {score.label: score for score in run.scores if score.part == part.name}
    if not scores:  # a run without this part
        return {}
    total = scores.pop(ALL)
    if len(scores) < 2:
        further = {heading: _percent(total.metrics[name].mean) for name, heading in part.metrics.items()}
        return {**further, "success": _percent(total.success)}
    cells = {PAPER_NAMES.get(label, label): _percent(_headline(score)) for label, score in scores.items()}
    macro = next(macro for macro in run.macros if macro.part == part.name)
    if _EM in macro.metrics:
        return {**cells, "Avg": _percent(macro.metrics[_EM].mean)}
    return {**cells, ALL: _percent(total.success)}


def _headline(score: Score) -> float:
    return score.metrics[_EM].mean if _EM in score.metrics else score.success


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f}"
