"""Comparisons of runs for people: in a terminal, and as markdown."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from agentgym_tok.cli.terminal import show
from agentgym_tok.evaluate import Comparison
from agentgym_tok.evaluate.comparison import Difference, Flip, PartComparison

__all__ = ["comparison_markdown", "show_comparison"]

_IN_TOKENS = frozenset({"steps", "turn_tokens"})
"""Figures that are no percentages."""

_HEADINGS = ("task", "figure", "tasks", "first", "second", "difference", "95 % interval", "p")


def show_comparison(found: Comparison, flips: int) -> None:
    """Print a comparison.

    Args:
        found: It.
        flips: Most tasks of each list.
    """
    print(f"first: {found.base}\nsecond: {found.other}")
    for part in found.parts:
        table = Table(title=f"{part.name}: {part.source}, {part.pairs} pairs", title_justify="left")
        for place, heading in enumerate(_HEADINGS):
            table.add_column(heading, justify="left" if place < 2 else "right")
        for figure in part.figures:
            table.add_row(*_cells(figure))
        show(table)
        print("\n".join([*_verdict(part), *_flipped(part, flips)]))
    print("\n".join(_differing(found)))


def comparison_markdown(found: Comparison, flips: int) -> str:
    """Return a comparison as markdown.

    Args:
        found: It.
        flips: Most tasks of each list.
    """
    lines = [f"# {found.other} against {found.base}", ""]
    for part in found.parts:
        lines += [f"## {part.name}: {part.source}, {part.pairs} pairs", ""]
        rows = [_HEADINGS, ("---", "---", *["---:"] * (len(_HEADINGS) - 2)), *map(_cells, part.figures)]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines += ["", *(f"- {line}" for line in [*_verdict(part), *_flipped(part, flips)]), ""]
    return "\n".join([*lines, *(f"- {line}" for line in _differing(found))])


def _cells(figure: Difference) -> tuple[str, ...]:
    scale = 1 if figure.figure in _IN_TOKENS else 100
    difference, low, high = (f"{scale * value:+.1f}" for value in (figure.difference, figure.low, figure.high))
    return (
        figure.label,
        figure.figure,
        str(figure.tasks),
        f"{scale * figure.base:.1f}",
        f"{scale * figure.other:.1f}",
        difference,
        f"{low} to {high}",
        "" if figure.p is None else _p(figure.p),
    )


def _verdict(part: PartComparison) -> Iterator[str]:
    if part.left_out:
        yield f"{part.left_out} episodes that only one run has are left out"
    counts = f"{len(part.gained)} solved by the second run alone, {len(part.lost)} by the first alone"
    yield counts if part.mcnemar is None else f"{counts}; exact McNemar p {_p(part.mcnemar)}"


def _flipped(part: PartComparison, most: int) -> Iterator[str]:
    """Name tasks with both episodes, for `agentgym-tok trace show RUN --episode ID`."""
    yield from _named("gained", part.gained, most)
    yield from _named("lost", part.lost, most)


def _named(word: str, flips: Sequence[Flip], most: int) -> Iterator[str]:
    for flip in flips[:most]:
        sample = f" sample {flip.replica}" if flip.replica else ""
        yield f"{word}: {flip.task}{sample}: episode {flip.base[:12]}, now {flip.other[:12]}"
    if len(flips) > most:
        yield f"{word}: {len(flips) - most} more"


def _differing(found: Comparison) -> list[str]:
    lines = [f"differs: {each.name}: {_short(each.base)}, now {_short(each.other)}" for each in found.options]
    return lines or ["nothing differs in configuration, versions or digests"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"
