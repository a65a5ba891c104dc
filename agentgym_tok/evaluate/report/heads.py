"""What was run: the cards on top, the line of the paper's table, and all that made the scores."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from agentgym_tok.evaluate.paper_table import PAPER_NAMES
from agentgym_tok.evaluate.report.scored import part_names
from agentgym_tok.evaluate.report.sources import Run
from agentgym_tok.evaluate.report.tables import Cell, Column, Table
from agentgym_tok.evaluate.report.text import number, percent
from agentgym_tok.evaluate.report.trained import LAST, points_of
from agentgym_tok.evaluate.run_results import PartResults, RunResults
from agentgym_tok.evaluate.scores import ALL, Macro, Mean, Score

__all__ = ["Card", "Headline", "PaperLine", "PaperTable", "cards", "made_by_table", "paper", "tasks_table"]


@dataclass(frozen=True, slots=True)
class Headline:
    """Hold the first number that people look for."""

    part: str
    what: str
    value: str
    interval: str


@dataclass(frozen=True, slots=True)
class Card:
    """Hold what stands on top of a report for a run."""

    run: Run
    policy: str
    source: str
    facts: tuple[str, ...]
    headlines: tuple[Headline, ...]


def cards(runs: Sequence[Run]) -> list[Card]:
    """Return a card for each run."""
    return [_card(run, run.results) for run in runs]


def _card(run: Run, results: RunResults | None) -> Card:
    facts: list[str] = []
    headlines: list[Headline] = []
    config = run.config or {}
    policy, source = str(config.get("model", "")), f"{config.get('world', '')} {config.get('source', '')}".strip()
    if results is not None:
        policy, source = results.made_by.policy, results.source
        tokens = sum(cost.turn_tokens for cost in results.costs)
        facts += [f"{number(len(results.episodes))} episodes", f"{number(tokens)} tokens of turns"]
        facts.append(f"{results.seconds:,.1f} s")
        headlines += [_headline(results, part) for part in results.parts if _total(results, part)]
    if run.steps:
        facts += [f"{config.get('objective', 'training')}", f"{number(len(run.steps))} steps"]
        facts.append(f"{number(run.steps[-1].get('episodes') or 0)} rollouts")
        headlines += _trained(run)
    return Card(run, policy, source, tuple(facts), tuple(headlines))


def _headline(results: RunResults, part: PartResults) -> Headline:
    what, mean = _main(results, part)
    return Headline(part.name, what, percent(_value(mean)), f"{percent(mean.low)} to {percent(mean.high)}")


def _trained(run: Run) -> Iterator[Headline]:
    for part, key, most in (("rollouts", "rollouts/success", LAST), ("held-out tasks", "evaluation/success", 1)):
        values = [value for _, value in points_of(run.steps, key)][-most:]
        if values:
            words = f"mean of the last {len(values)} steps" if most > 1 else "at the last test"
            yield Headline(part, "success", percent(fmean(values)), words)


def _main(results: RunResults, part: PartResults) -> tuple[str, Mean | Score]:
    """Return the score that papers put last: the macro average of exact match, else success over episodes."""
    total = _total(results, part)
    assert total is not None
    macro = next((macro for macro in results.macros if macro.part == part.name), None)
    if macro is not None and "em" in macro.metrics:
        return "EM, macro average", macro.metrics["em"]
    return ("EM", total.metrics["em"]) if "em" in total.metrics else ("success", total)


def _total(results: RunResults, part: PartResults) -> Score | None:
    return next((score for score in results.scores if (score.part, score.label) == (part.name, ALL)), None)


def _value(found: Mean | Score | Macro) -> float:
    return found.mean if isinstance(found, Mean) else found.success if isinstance(found, Score) else found.success.mean


# ---- the table of papers


@dataclass(frozen=True, slots=True)
class PaperLine:
    """Hold a run's line: score and interval in percent, or nothing, for each column of each part."""

    run: Run
    parts: tuple[tuple[tuple[str, str] | None, ...], ...]


@dataclass(frozen=True, slots=True)
class PaperTable:
    """Hold the table as papers print it: parts, and under each its columns."""

    parts: tuple[tuple[str, tuple[str, ...]], ...]
    lines: tuple[PaperLine, ...]


def paper(runs: Sequence[Run]) -> PaperTable | None:
    """Return the table with the columns of `paper_table`, and intervals; None where no run is an evaluation."""
    evaluated = [(run, run.results) for run in runs if run.results]
    parts: list[tuple[str, tuple[str, ...]]] = []
    for name in part_names(runs):
        heads = dict.fromkeys(
            head
            for _, results in evaluated
            for part in results.parts
            if part.name == name
            for head in _cells(results, part)
        )
        parts.append(
            (name, (*(head for head in heads if head not in _LAST), *(head for head in _LAST if head in heads)))
        )
    lines = []
    for run, results in evaluated:
        own = {part.name: _cells(results, part) for part in results.parts}
        cells = (tuple(_shown(own.get(name, {}).get(head)) for head in heads) for name, heads in parts)
        lines.append(PaperLine(run, tuple(cells)))
    return PaperTable(tuple(parts), tuple(lines)) if parts else None


_LAST = ("success", ALL, "Avg")
"""Headings that stand behind the others of their part."""


def _cells(results: RunResults, part: PartResults) -> dict[str, Mean | Score]:
    scores = {score.label: score for score in results.scores if score.part == part.name}
    if not scores:
        return {}
    total = scores.pop(ALL)
    if len(scores) < 2:
        return {**{heading: total.metrics[name] for name, heading in part.metrics.items()}, "success": total}
    cells = {PAPER_NAMES.get(label, label): score.metrics.get("em", score) for label, score in scores.items()}
    macro = next(macro for macro in results.macros if macro.part == part.name)
    return {**cells, "Avg": macro.metrics["em"]} if "em" in macro.metrics else {**cells, ALL: total}


def _shown(found: Mean | Score | None) -> tuple[str, str] | None:
    return None if found is None else (percent(_value(found)), f"{percent(found.low)}\u2013{percent(found.high)}")


# ---- what made the scores


def made_by_table(runs: Sequence[Run]) -> Table:
    """Return what made the scores, a column for each run."""
    documents = [_made_by(run) for run in runs]
    names = list(dict.fromkeys(name for document in documents for name in document))
    rows = [(name, *(document.get(name, "") for document in documents)) for name in names]
    columns = (Column("what", "what"), *(Column(run.name, run.name) for run in runs))
    title = "Versions and digests that made the scores"
    return Table("made-by", title, columns, tuple(rows), shut=True)


def _made_by(run: Run) -> dict[str, str]:
    found: dict[str, str] = {}
    if run.results is not None:
        results, made = run.results, run.results.made_by
        found |= {
            "source": results.source,
            "policy": made.policy,
            "policy's files": made.policy_digest or "none on the machine",
            "versions of weights": ", ".join(made.weight_versions) or "none named",
            "chat format": made.chat,
            "its fingerprint": results.fingerprint,
            "library": results.library,
            "its files": made.content,
            "its files at the beginning": ", ".join(made.begun_with),
            "configuration's digest": made.configuration,
            "python": made.python,
            "platform": made.platform,
        }
        found |= {f"package {name}": version for name, version in made.packages.items()}
    config = run.config if run.results is None else run.results.config
    for name, value in (config or {}).items():
        if name != "tasks" or not isinstance(value, list):
            found[f"option {name}"] = value if isinstance(value, str) else json.dumps(value)
    return found


def tasks_table(runs: Sequence[Run]) -> Table | None:
    """Return what each part was played on; None where no run is an evaluation."""
    rows: list[tuple[Cell, ...]] = [
        (
            part.name,
            run.name,
            part.source,
            part.prompting,
            part.tasks,
            part.samples,
            part.max_steps,
            str(part.seed),
            part.tasks_digest[:12],
            part.data_digest[:12],
        )
        for name in part_names(runs)
        for run in runs
        if run.results
        for part in run.results.parts
        if part.name == name
    ]
    columns = (
        Column("part", "part"),
        Column("run", "run"),
        Column("source", "source"),
        Column("prompting", "prompting"),
        Column("tasks", "tasks", "number"),
        Column("samples", "samples of each", "number"),
        Column("max_steps", "most steps", "number"),
        Column("seed", "seed"),
        Column("tasks_digest", "digest of the tasks"),
        Column("data_digest", "and of the first texts"),
    )
    return Table("played", "What was played", columns, tuple(rows)) if rows else None
