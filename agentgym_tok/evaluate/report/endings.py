"""How episodes ended: solved, not solved, cut off by a limit, failed at a boundary."""

from collections import Counter
from collections.abc import Mapping, Sequence

from agentgym_tok.evaluate.report.charts import Figure, Panel, Shares
from agentgym_tok.evaluate.report.scored import part_names
from agentgym_tok.evaluate.report.sources import Run
from agentgym_tok.evaluate.report.tables import Cell, Column, Link, Table
from agentgym_tok.evaluate.report.text import one_line
from agentgym_tok.evaluate.results import EpisodeResult

__all__ = ["ENDINGS", "ending", "ending_figure", "ending_table", "failure_table"]

ENDINGS = ("solved", "not solved", "cut off", "failed")
"""The world called it solved; it ended and was not; a limit ended it before it was; something failed."""


def ending(result: EpisodeResult) -> str:
    """Return one of `ENDINGS`."""
    if result.failure is not None:
        return "failed"
    if result.success:
        return "solved"
    return "cut off" if result.truncation is not None else "not solved"


def ending_figure(runs: Sequence[Run], names: tuple[str, ...]) -> Figure:
    """Return bars of endings, a bar for each part and run."""
    rows = []
    for part in part_names(runs):
        for run in runs:
            found = _of(run, part)
            if found:
                counts = Counter(map(ending, found))
                rows.append((part, run.number, tuple(counts[kind] for kind in ENDINGS)))
    chart = Shares(ENDINGS, tuple(rows))
    note = "Cut off: a limit ended the episode before it was solved. Failed: some boundary did."
    return Figure("endings", "How episodes ended", (Panel("", chart),), names, note)


def ending_table(runs: Sequence[Run]) -> Table:
    """Return counts of endings, with the limits that cut episodes off, and of mistakes within them."""
    limits = sorted({str(found.truncation) for run in runs for found in _of(run) if ending(found) == "cut off"})
    rows: list[tuple[Cell, ...]] = []
    for part in part_names(runs):
        for run in runs:
            found = _of(run, part)
            if not found:
                continue
            kinds = Counter(map(ending, found))
            cut = Counter(str(one.truncation) for one in found if ending(one) == "cut off")
            rows.append(
                (
                    part,
                    run.name,
                    len(found),
                    kinds["solved"],
                    kinds["not solved"],
                    *(cut[limit] for limit in limits),
                    kinds["failed"],
                    sum(one.invalid_actions for one in found),
                    sum(one.format_errors for one in found),
                    sum(one.steps for one in found),
                )
            )
    columns = (
        Column("part", "part"),
        Column("run", "run"),
        Column("episodes", "episodes", "number"),
        Column("solved", "solved", "number"),
        Column("not_solved", "not solved", "number"),
        *(Column(f"cut_off_{limit}", f"cut off: {limit}", "number") for limit in limits),
        Column("failed", "failed", "number"),
        Column("refused", "turns refused", "number"),
        Column("malformed", "turns malformed", "number"),
        Column("turns", "of turns", "number"),
    )
    note = "Refused: by the world. Malformed: they broke the protocol's form."
    return Table("endings", "Endings and mistakes", columns, tuple(rows), note)


def failure_table(runs: Sequence[Run], links: Mapping[tuple[int, str], str]) -> Table | None:
    """Return failures by part, run, boundary and error; None where nothing failed.

    Args:
        runs: The runs.
        links: Where an episode stands, by run's number and id.
    """
    groups: dict[tuple[str, int, str, str], list[EpisodeResult]] = {}
    for part in part_names(runs):
        for run in runs:
            for one in _of(run, part):
                if one.failure is not None:
                    boundary, _, rest = one.failure.partition(": ")
                    groups.setdefault((part, run.number, boundary, rest.partition(": ")[0]), []).append(one)
    if not groups:
        return None
    rows: list[tuple[Cell, ...]] = []
    for (part, number, boundary, kind), found in groups.items():
        message = str(found[0].failure).partition(": ")[2].partition(": ")[2]
        first = Link(one_line(message, 240), links.get((number, found[0].episode), ""))
        rows.append((part, runs[number].name, boundary, kind, len(found), first))
    columns = (
        Column("part", "part"),
        Column("run", "run"),
        Column("boundary", "boundary"),
        Column("error", "error"),
        Column("episodes", "episodes", "number"),
        Column("first", "words of the first"),
    )
    return Table("failures", "Failures by boundary", columns, tuple(rows))


def _of(run: Run, part: str | None = None) -> list[EpisodeResult]:
    if run.results is None:
        return []
    return [*run.results.episodes] if part is None else run.results.of_part(part)
