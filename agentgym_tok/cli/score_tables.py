"""Tables of scores, for a terminal."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.table import Table

from agentgym_tok.evaluate import Macro, Mean, Passes, Score
from agentgym_tok.evaluate.cost import Cost
from agentgym_tok.evaluate.scores import ALL

__all__ = ["cost_table", "passes_table", "score_table"]


_NO_METRICS: Mapping[str, str] = MappingProxyType({})


def score_table(
    title: str,
    scores: Sequence[Score],
    metrics: Mapping[str, str] = _NO_METRICS,
    macro: Macro | None = None,
) -> Table:
    """Return the table of an evaluation, one line for each kind of task.

    Args:
        title: Above it.
        scores: The lines.
        metrics: Headings of further scores, by their names.
        macro: The last line: the mean over the kinds of task, where there are several.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("task")
    further = [part for heading in metrics.values() for part in (heading, "95 % interval")]
    for name in ("n", "success", "95 % interval", *further, "steps", "tokens", "failed"):
        table.add_column(name, justify="right")
    for score in scores:
        if score.label == ALL:
            table.add_section()
        table.add_row(
            score.label,
            str(score.n),
            f"{100 * score.success:.1f} %",
            _range(score),
            *(part for name in metrics for part in _shown(score.metrics[name])),
            f"{score.steps:.1f}",
            f"{score.turn_tokens:.0f}",
            str(score.failures),
        )
    if macro is not None:
        further = [part for name in metrics for part in _shown(macro.metrics[name])]
        table.add_row("macro", "", f"{100 * macro.success.mean:.1f} %", _range(macro.success), *further)
    return table


def passes_table(passes: Sequence[Passes]) -> Table:
    """Return the table of what k samples of a task reach."""
    table = Table(title="of k samples of a task", title_justify="left")
    table.add_column("part")
    for name in ("k", "pass@k: one solves it", "95 % interval", "pass^k: all do", "95 % interval"):
        table.add_column(name, justify="right")
    for line in passes:
        table.add_row(line.part, str(line.k), *_shown(line.at_k), *_shown(line.all_k))
    return table


def cost_table(costs: Sequence[Cost]) -> Table:
    """Return the table of what an evaluation took, by part and engine."""
    table = Table(title="cost", title_justify="left")
    table.add_column("part")
    table.add_column("engine")
    for name in ("turns", "prompt tokens", "of them new", "tokens of turns", "seconds", "tokens/s"):
        table.add_column(name, justify="right")
    for cost in costs:
        counts = (cost.turns, cost.prompt_tokens, cost.new_tokens, cost.turn_tokens)
        rate = f"{cost.turn_tokens / cost.seconds:,.0f}" if cost.seconds else ""
        table.add_row(cost.part, cost.engine, *(f"{count:,}" for count in counts), f"{cost.seconds:.1f}", rate)
    return table


def _shown(mean: Mean) -> tuple[str, str]:
    return f"{100 * mean.mean:.1f}", _range(mean)


def _range(found: Mean | Score) -> str:
    return f"{100 * found.low:.1f} to {100 * found.high:.1f}"
