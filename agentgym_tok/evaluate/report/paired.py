"""Tables of runs beside the first one: what differs, whether that can be chance, and which tasks flipped."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate.comparison import Comparison, Difference, Flip, compare
from agentgym_tok.evaluate.paper_table import PAPER_NAMES
from agentgym_tok.evaluate.report.charts import Dots, Figure, Panel
from agentgym_tok.evaluate.report.sources import Run
from agentgym_tok.evaluate.report.tables import Cell, Column, Link, Table
from agentgym_tok.evaluate.report.text import one_line, probability
from agentgym_tok.evaluate.scores import ALL

__all__ = ["Pairing", "pairings"]

_EFFORT = frozenset({"steps", "turn_tokens"})
"""Figures that are no shares."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Hold what a run looks like beside the first one.

    Args:
        title: Which run beside which.
        verdicts: A sentence for each part; or why both cannot be compared.
        figure: Differences of success.
        tables: Differences, tasks that flipped, options.
    """

    title: str
    verdicts: tuple[str, ...]
    figure: Figure | None = None
    tables: tuple[Table, ...] = ()


def pairings(runs: Sequence[Run], links: Mapping[tuple[int, str], str]) -> Iterator[Pairing]:
    """Compare each evaluation with the first one, in what both have.

    Args:
        runs: The runs.
        links: Where an episode stands, by run's number and id.
    """
    evaluated = [run for run in runs if run.results]
    for other in evaluated[1:]:
        base = evaluated[0]
        title = f"{other.name} beside {base.name}"
        assert base.results is not None
        assert other.results is not None
        try:
            found = compare(base.results, other.results, common=True, names=(base.name, other.name))
        except ConfigError as error:
            yield Pairing(title, (f"These cannot be compared: {error.what} ({error.where}).",))
            continue
        names = tuple(run.name for run in runs)
        yield Pairing(
            title,
            tuple(_verdicts(found)),
            _figure(found, base, other, names),
            tuple(_tables(found, base, other, links)),
        )


def _verdicts(found: Comparison) -> Iterator[str]:
    for part in found.parts:
        words = f"{part.name}: {part.pairs:,} pairs; {len(part.gained):,} solved by {found.other} alone, "
        words += f"{len(part.lost):,} by {found.base} alone"
        if part.mcnemar is not None:
            words += f"; McNemar's exact p {probability(part.mcnemar)}"
        if part.left_out:
            words += f"; {part.left_out:,} episodes that only one run has are left out"
        yield f"{words}."


def _figure(found: Comparison, base: Run, other: Run, names: tuple[str, ...]) -> Figure:
    panels = []
    for part in found.parts:
        each = [figure for figure in part.figures if figure.figure == "success"]
        values = tuple((one.difference, one.low, one.high) for one in each)
        labels = tuple(PAPER_NAMES.get(one.label, one.label) for one in each)
        panels.append(Panel(part.name, Dots(labels, {other.number: values}, signed=True)))
    note = f"Success of {other.name} minus that of {base.name}, in points, with 95 % intervals."
    return Figure(f"compare-{other.slug}-beside-{base.slug}", "Differences", tuple(panels), names, note)


def _tables(found: Comparison, base: Run, other: Run, links: Mapping[tuple[int, str], str]) -> Iterator[Table]:
    name = f"{other.slug}-beside-{base.slug}"
    headings = (
        {key: heading for part in base.results.parts for key, heading in part.metrics.items()} if base.results else {}
    )
    headings |= {"turn_tokens": "tokens"}
    rows = [
        (part.name, PAPER_NAMES.get(each.label, each.label), *_difference(each, headings))
        for part in found.parts
        for each in part.figures
    ]
    columns = (
        Column("part", "part"),
        Column("kind", "kind of task"),
        Column("figure", "figure"),
        Column("tasks", "tasks", "number"),
        Column("base", base.name, "tenth"),
        Column("other", other.name, "tenth"),
        Column("difference", "difference", "change"),
        Column("difference_interval", "95 % interval", "change"),
        Column("p", "p", "p"),
    )
    note = (
        f"{other.name} minus {base.name}, pair by pair, scores in points; intervals by bootstrap over tasks; p of a "
        "paired permutation test over tasks, not corrected for how many there are."
    )
    for label, title, shut in ((True, "Over all tasks", False), (False, "By kind of task", True)):
        some = tuple(row for row in rows if (row[1] == ALL) is label)
        if some:
            file = f"compare-{'all' if label else 'kinds'}-{name}"
            yield Table(
                file,
                title,
                columns if label else columns[:-1],
                some if label else tuple(row[:-1] for row in some),
                note,
                shut=shut,
            )
    yield from _flips(found, base, other, links, name)
    yield _options(found, name)


def _difference(each: Difference, headings: Mapping[str, str]) -> tuple[Cell, ...]:
    scale = 1 if each.figure in _EFFORT else 100
    means = (scale * each.base, scale * each.other, scale * each.difference)
    return headings.get(each.figure, each.figure), each.tasks, *means, (scale * each.low, scale * each.high), each.p


def _flips(
    found: Comparison, base: Run, other: Run, links: Mapping[tuple[int, str], str], name: str
) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for part in found.parts:
        for word, flips in (("gained", part.gained), ("lost", part.lost)):
            rows += [(part.name, word, flip.task, flip.replica, *_episodes(flip, base, other, links)) for flip in flips]
    if rows:
        columns = (
            Column("part", "part"),
            Column("flip", "flip"),
            Column("task", "task"),
            Column("sample", "sample", "number"),
            Column("base_episode", base.name),
            Column("other_episode", other.name),
        )
        note = f"Gained: solved by {other.name} alone. Lost: by {base.name} alone."
        title = f"{len(rows):,} episodes that flipped"
        yield Table(f"flips-{name}", title, columns, tuple(rows), note, shut=True, most=100)


def _episodes(flip: Flip, base: Run, other: Run, links: Mapping[tuple[int, str], str]) -> tuple[Link, Link]:
    first, second = links.get((base.number, flip.base), ""), links.get((other.number, flip.other), "")
    return Link(flip.base[:12], first, flip.base), Link(flip.other[:12], second, flip.other)


def _options(found: Comparison, name: str) -> Table:
    columns = (Column("name", "what"), Column("base", found.base), Column("other", found.other))
    rows = tuple((each.name, _json(each.base), _json(each.other)) for each in found.options)
    note = "" if rows else "Nothing differs in configuration, versions or digests."
    return Table(f"settings-{name}", "What was set or installed differently", columns, rows, note, shut=len(rows) > 8)


def _json(value: Any) -> str:
    return "" if value is None else one_line(json.dumps(value, ensure_ascii=True), 120)
