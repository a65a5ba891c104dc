"""Tables for a terminal."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.console import Console
from rich.table import Table

from agentgym_tok.evaluate import Mean, Score

__all__ = ["score_table", "show"]


_NO_METRICS: Mapping[str, str] = MappingProxyType({})


def score_table(title: str, scores: Sequence[Score], metrics: Mapping[str, str] = _NO_METRICS) -> Table:
    """Return the table of an evaluation, one line for each kind of task.

    Args:
        title: Above it.
        scores: The lines.
        metrics: Headings of further scores, by their names.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("task")
    further = [part for heading in metrics.values() for part in (heading, "95 % interval")]
    for name in ("n", "success", "95 % interval", *further, "steps", "tokens", "failed"):
        table.add_column(name, justify="right")
    for score in scores:
        if score.label == "All":
            table.add_section()
        table.add_row(
            score.label,
            str(score.n),
            f"{100 * score.success:.1f} %",
            f"{100 * score.low:.1f} to {100 * score.high:.1f}",
            *(part for name in metrics for part in _shown(score.metrics[name])),
            f"{score.steps:.1f}",
            f"{score.turn_tokens:.0f}",
            str(score.failures),
        )
    return table


def _shown(mean: Mean) -> tuple[str, str]:
    return f"{100 * mean.mean:.1f}", f"{100 * mean.low:.1f} to {100 * mean.high:.1f}"


def show(*parts: object) -> None:
    """Print to the terminal, as wide as it is; into a file or a pipe, as wide as needed."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(*parts)
