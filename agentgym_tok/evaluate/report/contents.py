"""What stands in a report, section by section."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentgym_tok.evaluate.report.charts import Figure
from agentgym_tok.evaluate.report.endings import ENDINGS, ending, ending_figure, ending_table, failure_table
from agentgym_tok.evaluate.report.episodes import chosen, episode_table, links_of
from agentgym_tok.evaluate.report.heads import made_by_table, paper, tasks_table
from agentgym_tok.evaluate.report.paired import pairings
from agentgym_tok.evaluate.report.played import Line, Played, read_played
from agentgym_tok.evaluate.report.scored import cost_table, pass_figure, pass_table, score_figure, score_tables
from agentgym_tok.evaluate.report.sources import Run
from agentgym_tok.evaluate.report.spread import spread_figures
from agentgym_tok.evaluate.report.tables import Table
from agentgym_tok.evaluate.report.text import file_name, number
from agentgym_tok.evaluate.report.trained import training_figures, training_table
from agentgym_tok.evaluate.results import EpisodeResult

__all__ = ["Contents", "Example", "Item", "Section", "contents"]


@dataclass(frozen=True, slots=True)
class Item:
    """Hold a piece of a section; its kind says what the value is, and how the page shows it."""

    kind: Literal["table", "figure", "curves", "note", "paper", "pairing", "examples", "episodes"]
    value: Any


@dataclass(frozen=True, slots=True)
class Section:
    """Hold a section."""

    id: str
    title: str
    pieces: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """Hold an episode to read."""

    run: str
    part: str
    task: str
    ending: int
    facts: str
    href: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """Hold a report before anybody decides how it looks.

    Args:
        runs: The runs.
        sections: What stands in it.
        tables: All tables, each with a file name of its own.
        figures: All figures, likewise.
        links: Where the viewer shows an episode, by run's number and id.
    """

    runs: tuple[Run, ...]
    sections: tuple[Section, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    links: Mapping[tuple[int, str], str]


def contents(runs: Sequence[Run], *, traces: bool) -> Contents:
    """Make all tables and figures of runs.

    Args:
        runs: The runs.
        traces: Read the traces of evaluations, for what only they know.

    Raises:
        TraceError: A trace cannot be read.
    """
    examples = list(chosen(runs))
    played: dict[int, Played] = {}
    for run in runs:
        if traces and run.results and run.traced:
            played[run.number] = read_played(run, {one.episode for owner, one in examples if owner is run})
    links = {
        key: href
        for run in runs
        if run.number in played
        for key, href in links_of(run, played[run.number].seconds).items()
    }
    book = _Book()
    pieces = _sections(runs, played, links, examples)
    sections = tuple(Section(key, title, tuple(map(book.entered, items))) for key, title, items in pieces if items)
    return Contents(tuple(runs), sections, tuple(book.tables), tuple(book.figures), links)


def _sections(
    runs: Sequence[Run],
    played: Mapping[int, Played],
    links: Mapping[tuple[int, str], str],
    examples: Sequence[tuple[Run, EpisodeResult]],
) -> Iterator[tuple[str, str, list[Item]]]:
    names = tuple(run.name for run in runs)
    evaluated = [run for run in runs if run.results]
    if evaluated:
        tables = [Item("table", table) for table in score_tables(runs)]
        yield "scores", "Scores", [Item("paper", paper(runs)), Item("figure", score_figure(runs, names)), *tables]
    yield "comparisons", "Comparisons", [Item("pairing", found) for found in pairings(runs, links)]
    if evaluated:
        yield "samples", "Several samples", _some(("figure", pass_figure(runs, names)), ("table", pass_table(runs)))
    curves = tuple(training_figures(runs, names))
    yield "training", "Training", _some(("curves", curves or None), ("table", training_table(runs)))
    if evaluated:
        failures = ("table", failure_table(runs, links))
        yield (
            "endings",
            "Endings",
            _some(("figure", ending_figure(runs, names)), ("table", ending_table(runs)), failures),
        )
        spread = [Item("figure", figure) for figure in spread_figures(runs, played, names)]
        without = [run.name for run in evaluated if run.number not in played]
        said = f"Tokens of a turn and times stand in traces, and those of {', '.join(without)} were not read."
        yield "distributions", "Distributions", [*spread, *_some(("note", said if without else None))]
        yield "cost", "Cost", [Item("table", cost_table(runs))]
        found = tuple(_example(run, one, played[run.number], links) for run, one in examples if run.number in played)
        some = tuple(one for one in found if one.lines)
        yield "examples", "Episodes to read", _some(("note", _CHOSEN if some else None), ("examples", some or None))
        yield "episodes", "All episodes", [Item("episodes", episode_table(runs, links))]
    yield "made", "What made this", _some(("table", tasks_table(runs)), ("table", made_by_table(runs)))


_CHOSEN = "Of each part, run and ending the one in the middle, by its steps. Long texts and walks are cut."


def _some(*found: tuple[Any, Any]) -> list[Item]:
    return [Item(kind, value) for kind, value in found if value is not None]


def _example(run: Run, one: EpisodeResult, played: Played, links: Mapping[tuple[int, str], str]) -> Example:
    transcript = played.transcripts.get(one.episode)
    facts = [f"{number(one.steps)} turns", f"return {number(one.reward)}"]
    facts += [f"{name} {100 * value:.1f} %" for name, value in one.metrics.items()]
    facts += [f"{number(one.turn_tokens)} tokens", *([f"limit: {one.truncation}"] if one.truncation else [])]
    return Example(
        run=run.name,
        part=one.part,
        task=one.task,
        ending=ENDINGS.index(ending(one)),
        facts=" \u00b7 ".join(facts),
        href=links.get((run.number, one.episode), ""),
        lines=transcript.lines if transcript else (),
    )


class _Book:
    """Keep all tables and figures, and give each a file name of its own."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.figures: list[Figure] = []

    def entered(self, item: Item) -> Item:
        """Return a piece whose tables and figures have names of their own."""
        if item.kind in ("table", "episodes"):
            return replace(item, value=self._table(item.value))
        if item.kind == "pairing":
            figure = item.value.figure and self._figure(item.value.figure)
            return replace(
                item, value=replace(item.value, figure=figure, tables=tuple(map(self._table, item.value.tables)))
            )
        if item.kind == "figure":
            return replace(item, value=self._figure(item.value))
        if item.kind == "curves":
            return replace(item, value=tuple(map(self._figure, item.value)))
        return item

    def _table(self, table: Table) -> Table:
        self.tables.append(replace(table, name=file_name(table.name, [each.name for each in self.tables])))
        return self.tables[-1]

    def _figure(self, figure: Figure) -> Figure:
        self.figures.append(replace(figure, name=file_name(figure.name, [each.name for each in self.figures])))
        return self.figures[-1]
