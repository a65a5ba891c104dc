"""Tables for a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from agentgym_tok.evaluate import Score

__all__ = ["score_table", "show"]


def score_table(title: str, scores: Sequence[Score]) -> Table:
    """Return the table of an evaluation, one line for each kind of task."""
    table = Table(title=title, title_justify="left")
    table.add_column("task")
    for name in ("n", "success", "95 % interval", "steps", "tokens", "failed"):
        table.add_column(name, justify="right")
    for score in scores:
        if score.label == "All":
            table.add_section()
        table.add_row(
            score.label,
            str(score.n),
            f"{100 * score.success:.1f} %",
            f"{100 * score.low:.1f} to {100 * score.high:.1f}",
            f"{score.steps:.1f}",
            f"{score.turn_tokens:.0f}",
            str(score.failures),
        )
    return table


def show(*parts: object) -> None:
    """Print to the terminal, as wide as it is; into a file or a pipe, as wide as needed."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(*parts)
