"""Tables and figures of scores: as papers print them, by kind of task, of several samples, and what they cost."""

from collections.abc import Iterator, Sequence

from agentgym_tok.evaluate.paper_table import PAPER_NAMES
from agentgym_tok.evaluate.report.charts import Curve, Dots, Figure, Lines, Panel
from agentgym_tok.evaluate.report.sources import Run
from agentgym_tok.evaluate.report.tables import Cell, Column, Table
from agentgym_tok.evaluate.run_results import PartResults, RunResults
from agentgym_tok.evaluate.scores import ALL, Macro, Mean, Score

__all__ = ["MACRO", "cost_table", "part_names", "pass_figure", "pass_table", "score_figure", "score_tables"]

MACRO = "macro"
"""The label of the line that averages over kinds of task."""

_SAID = {"wilson": "Wilson", "bootstrap": "bootstrap over tasks"}


def part_names(runs: Sequence[Run]) -> list[str]:
    """Return the names of all parts, in the order in which runs have them."""
    return list(dict.fromkeys(part.name for run in runs if run.results for part in run.results.parts))


def score_tables(runs: Sequence[Run]) -> Iterator[Table]:
    """Yield a table for each part: a line for each kind of task and run, then all, then the macro average."""
    for name in part_names(runs):
        found = [(run, part) for run in runs for part in _parts(run) if part.name == name]
        metrics = {key: heading for _, part in found for key, heading in part.metrics.items()}
        columns = (
            Column("kind", "kind of task"),
            Column("run", "run"),
            Column("n", "episodes", "number"),
            Column("tasks", "tasks", "number"),
            Column("success", "success %", "percent"),
            Column("success_interval", "95 % interval", "percent"),
            Column("success_method", "its method"),
            *(
                column
                for key, heading in metrics.items()
                for column in (
                    Column(key, f"{heading} %", "percent"),
                    Column(f"{key}_interval", "95 % interval", "percent"),
                )
            ),
            Column("steps", "steps", "tenth"),
            Column("turn_tokens", "tokens", "tenth"),
            Column("failed", "failed", "number"),
        )
        rows, strong = _score_rows([run for run, _ in found], name, [*metrics])
        sources = list(dict.fromkeys(f"{part.source}, {part.prompting}" for _, part in found))
        macro = (
            " macro: mean of the kinds' means, each kind counts the same." if (MACRO in {r[0] for r in rows}) else ""
        )
        note = f"All: over episodes (micro average).{macro} Steps and tokens of the policy: mean of an episode."
        title = f"{name}: {'; '.join(sources)}"
        yield Table(f"scores-{name}", title, columns, tuple(rows), note, frozenset(strong))


def _score_rows(runs: Sequence[Run], part: str, metrics: Sequence[str]) -> tuple[list[tuple[Cell, ...]], list[int]]:
    rows: list[tuple[Cell, ...]] = []
    strong: list[int] = []
    for label in _labels(runs, part):
        for run in runs:
            score, macro = _score(run, part, label), _macro(run, part)
            if label == MACRO and macro is not None:
                further = (cell for key in metrics for cell in _mean_cells(macro.metrics.get(key)))
                method = _SAID[macro.success.interval]
                cells = (*_mean_cells(macro.success), method, *further)
                rows.append((label, run.name, None, None, *cells, None, None, None))
            elif score is not None:
                further = (cell for key in metrics for cell in _mean_cells(score.metrics.get(key)))
                cells = (score.success, (score.low, score.high), _SAID[score.interval], *further)
                effort = (score.steps, score.turn_tokens, score.failures)
                rows.append((PAPER_NAMES.get(label, label), run.name, score.n, score.tasks, *cells, *effort))
            else:
                continue
            if label in (ALL, MACRO):
                strong.append(len(rows) - 1)
    return rows, strong


def _mean_cells(mean: Mean | None) -> tuple[Cell, Cell]:
    return (None, None) if mean is None else (mean.mean, (mean.low, mean.high))


def score_figure(runs: Sequence[Run], names: tuple[str, ...]) -> Figure:
    """Return the headline score of each part by kind of task: exact match where there is one, else success."""
    panels = []
    for part in part_names(runs):
        with_it = [run for run in runs if any(each.name == part for each in _parts(run))]
        labels = _labels(with_it, part)
        values = {
            run.number: tuple(
                _estimate(_macro(run, part) if label == MACRO else _score(run, part, label)) for label in labels
            )
            for run in with_it
        }
        found = next(_score(run, part, ALL) for run in with_it)
        what = "EM" if found is not None and "em" in found.metrics else "success"
        chart = Dots(tuple(PAPER_NAMES.get(label, label) for label in labels), values)
        panels.append(Panel(f"{part}: {what}", chart))
    return Figure("scores", "Scores by kind of task", tuple(panels), names, "In percent, with 95 % intervals.")


def pass_table(runs: Sequence[Run]) -> Table | None:
    """Return pass@k and pass^k of each part and run; None where no task has several samples."""
    rows: list[tuple[Cell, ...]] = [
        (found.part, run.name, found.k, *_mean_cells(found.at_k), *_mean_cells(found.all_k))
        for part in part_names(runs)
        for run in runs
        if run.results
        for found in run.results.passes
        if found.part == part
    ]
    columns = (
        Column("part", "part"),
        Column("run", "run"),
        Column("k", "k", "number"),
        Column("pass_at_k", "pass@k %", "percent"),
        Column("pass_at_k_interval", "95 % interval", "percent"),
        Column("pass_all_k", "pass^k %", "percent"),
        Column("pass_all_k_interval", "95 % interval", "percent"),
    )
    note = (
        "pass@k: at least one of k samples solves the task. pass^k: all k do. Means over tasks, bootstrap over tasks."
    )
    return Table("passes", "Several samples of a task", columns, tuple(rows), note) if rows else None


def pass_figure(runs: Sequence[Run], names: tuple[str, ...]) -> Figure | None:
    """Return pass@k, which rises with k, and pass^k, which falls; None where no task has several samples."""
    panels = []
    for part in part_names(runs):
        curves = []
        for run in runs:
            found = [each for each in run.results.passes if each.part == part] if run.results else []
            for name, means in (
                ("pass@k", [each.at_k for each in found]),
                ("pass^k", [each.all_k for each in found]),
            ):
                points = tuple((float(each.k), mean.mean) for each, mean in zip(found, means, strict=True))
                band = tuple((mean.low, mean.high) for mean in means)
                if points:
                    curves.append(Curve(run.number, name, points, band, marked=True))
        if curves:
            panels.append(Panel(part, Lines(tuple(curves), "k, samples", share=True, whole=True)))
    note = "In percent; whiskers are 95 % intervals. Solid: pass@k, one of k solves the task. Dashed: pass^k, all do."
    return Figure("passes", "pass@k and pass^k", tuple(panels), names, note) if panels else None


def cost_table(runs: Sequence[Run]) -> Table:
    """Return what runs took, by part and engine."""
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        for cost in run.results.costs if run.results else ():
            counts = (cost.turns, cost.prompt_tokens, cost.new_tokens, cost.turn_tokens)
            rate = cost.turn_tokens / cost.seconds if cost.seconds else None
            rows.append((cost.part, run.name, cost.engine, *counts, cost.seconds, cost.turn_seconds, rate))
    columns = (
        Column("part", "part"),
        Column("run", "run"),
        Column("engine", "engine"),
        Column("turns", "turns", "number"),
        Column("prompt_tokens", "prompt tokens", "number"),
        Column("new_tokens", "of them new", "number"),
        Column("turn_tokens", "tokens of turns", "number"),
        Column("seconds", "seconds", "tenth"),
        Column("turn_seconds", "summed over turns", "tenth"),
        Column("tokens_per_second", "tokens/s", "number"),
    )
    note = (
        "Every attempt at a turn counts. New: what no earlier turn of the episode begins with. "
        "Seconds: in which at least one turn was under way."
    )
    return Table("cost", "Cost by part and engine", columns, tuple(rows), note)


def _parts(run: Run) -> tuple[PartResults, ...]:
    return run.results.parts if run.results else ()


def _labels(runs: Sequence[Run], part: str) -> list[str]:
    """Return the labels of a part's lines: kinds in the order of the first run, `All`, and the macro average."""
    results: list[RunResults] = [run.results for run in runs if run.results]
    kinds = dict.fromkeys(
        score.label for found in results for score in found.scores if score.part == part and score.label != ALL
    )
    macro = any(each.part == part for found in results for each in found.macros)
    return [*kinds, ALL, *([MACRO] if macro else [])]


def _score(run: Run, part: str, label: str) -> Score | None:
    scores = run.results.scores if run.results else ()
    return next((score for score in scores if score.part == part and score.label == label), None)


def _macro(run: Run, part: str) -> Macro | None:
    macros = run.results.macros if run.results else ()
    return next((macro for macro in macros if macro.part == part), None)


def _estimate(found: Score | Macro | None) -> tuple[float, float, float] | None:
    if found is None:
        return None
    mean = found.metrics.get("em") or (found.success if isinstance(found, Macro) else found)
    return (mean.success if isinstance(mean, Score) else mean.mean, mean.low, mean.high)
