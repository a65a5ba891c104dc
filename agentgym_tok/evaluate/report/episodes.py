"""The list of episodes: columns that a small script pages through, and the first lines for who runs no script."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym_tok.evaluate.report.endings import ENDINGS, ending
from agentgym_tok.evaluate.report.scored import part_names
from agentgym_tok.evaluate.report.sources import Run
from agentgym_tok.evaluate.report.tables import Cell, Column, Link, Table
from agentgym_tok.evaluate.report.text import one_line, visible
from agentgym_tok.evaluate.results import EpisodeResult

__all__ = ["chosen", "episode_data", "episode_table", "links_of"]

_SHOWN = 25
_LONGEST_TASK = 200


def links_of(run: Run, known: Mapping[str, Any]) -> dict[tuple[int, str], str]:
    """Return where the viewer shows each episode that stands in the run's trace, by run's number and id."""
    results = run.results.episodes if run.results else ()
    return {(run.number, one.episode): f"{run.view}#episode={one.episode}" for one in results if one.episode in known}


def episode_table(runs: Sequence[Run], links: Mapping[tuple[int, str], str]) -> Table:
    """Return all episodes; a page shows the first ones, the file has all."""
    metrics = _metrics(runs)
    columns = (
        Column("task", "task"),
        Column("run", "run"),
        Column("part", "part"),
        Column("kind", "kind"),
        Column("ending", "ending"),
        Column("sample", "sample", "number"),
        *(Column(key, f"{heading} %", "percent") for key, heading in metrics.items()),
        Column("return", "return", "number"),
        Column("steps", "steps", "number"),
        Column("turn_tokens", "tokens", "number"),
        Column("context_tokens", "context", "number"),
        Column("invalid_actions", "refused", "number"),
        Column("format_errors", "malformed", "number"),
        Column("truncation", "limit"),
        Column("failure", "failure"),
        Column("episode", "episode"),
    )
    rows = []
    for run in runs:
        before = _begin(run)
        for one in run.results.episodes if run.results else ():
            cells: tuple[Cell, ...] = (
                Link(one_line(one.task[before[one.part] :]), links.get((run.number, one.episode), ""), one.task),
                run.name,
                one.part,
                one.label,
                ending(one),
                one.replica,
                *(one.metrics.get(key) for key in metrics),
                one.reward,
                one.steps,
                one.turn_tokens,
                one.context_tokens,
                one.invalid_actions,
                one.format_errors,
                one.truncation or "",
                one_line(one.failure or ""),
                one.episode,
            )
            rows.append(cells)
    return Table("episodes", "Episodes", columns, tuple(rows), most=_SHOWN)


def episode_data(runs: Sequence[Run], links: Mapping[tuple[int, str], str]) -> dict[str, Any]:
    """Return all episodes as JSON for the page's script: a column each, words that come again only once."""
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    metrics = _metrics(runs)
    lines = [
        [
            run.number,
            word(one.part),
            word(visible(one_line(one.task[before[one.part] :], _LONGEST_TASK))),
            one.replica,
            word(visible(one.label)),
            ENDINGS.index(ending(one)),
            [_round(one.metrics.get(key)) for key in metrics],
            _round(one.reward),
            one.steps,
            one.turn_tokens,
            one.context_tokens,
            word(visible(_why(one))),
            one.episode,
            int((run.number, one.episode) in links),
        ]
        for run in runs
        for before in [_begin(run)]
        for one in (run.results.episodes if run.results else ())
    ]
    return {
        "runs": [visible(run.name) for run in runs],
        "views": [run.view for run in runs],
        "endings": ENDINGS,
        "metrics": [visible(heading) for heading in metrics.values()],
        "words": [*words],
        "episodes": lines,
    }


def _metrics(runs: Sequence[Run]) -> dict[str, str]:
    return {
        key: heading
        for run in runs
        if run.results
        for part in run.results.parts
        for key, heading in part.metrics.items()
    }


def _begin(run: Run) -> dict[str, int]:
    """Return how many letters all tasks of a part begin with alike, up to a slash."""
    results = run.results.parts if run.results else ()
    return {part.name: _common([one.task for one in run.results.of_part(part.name)]) for part in results if run.results}


def _common(tasks: Sequence[str]) -> int:
    if not tasks:
        return 0
    first, last = min(tasks), max(tasks)  # what these begin with alike, all between them do
    alike = next((place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), 0)
    return first.rfind("/", 0, alike) + 1


def _why(result: EpisodeResult) -> str:
    return one_line(result.failure or result.truncation or "")


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def chosen(runs: Sequence[Run]) -> Iterator[tuple[Run, EpisodeResult]]:
    """Yield episodes worth reading: of each part and run the middle one of each ending, by its steps."""
    for part in part_names(runs):
        for kind in ENDINGS:
            for run in runs:
                found = [one for one in run.results.of_part(part) if ending(one) == kind] if run.results else []
                if found:
                    ordered = sorted(found, key=lambda one: (one.steps, one.task, one.replica))
                    yield run, ordered[len(ordered) // 2]
