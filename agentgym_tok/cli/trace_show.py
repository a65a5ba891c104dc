"""`agentgym-tok trace show RUN`: the episodes of a trace, or one of them turn by turn."""

from pydantic import Field
from pydantic_settings import CliPositionalArg
from rich.table import Table
from rich.text import Text

from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.trace_prune import pruned_lines
from agentgym_tok.config import Config
from agentgym_tok.trace import Episode, TraceStore

__all__ = ["Options", "run"]


class Options(Config):
    """List a trace's episodes; with `--episode`, show one turn by turn. No tokenizer is needed."""

    run: CliPositionalArg[str] = Field(description="folder of the run")
    episode: str | None = Field(default=None, description="id of an episode, or its beginning")
    limit: int = Field(default=20, ge=1, description="most episodes of the list")


def run(options: Options) -> int:
    """Print; return 0."""
    with TraceStore(options.run, mode="r") as store:
        if options.episode is None:
            _list(store, options.limit)
            for line in pruned_lines(options.run):
                print(line)
            return 0
        matches = [head.id for head, _ in store.heads() if head.id.startswith(options.episode)]
        _turns(store.episode(matches[0] if len(matches) == 1 else options.episode), store.tokens())
    return 0


def _list(store: TraceStore, limit: int) -> None:
    meta = store.meta
    table = Table(
        title=f"{meta.source}, {meta.prompting}, chat {meta.chat}, {len(store)} episodes", title_justify="left"
    )
    for name in ("episode", "task", "status", "success", "turns", "return", "said", "context"):
        table.add_column(name, justify="right" if name in {"turns", "return", "said", "context"} else "left")
    for place, episode in enumerate(store.episodes()):
        if place == limit:
            table.add_row(f"... {len(store) - limit} more", *[""] * 7)
            break
        table.add_row(
            episode.id[:10],
            episode.head.task,
            episode.status,
            str(episode.success),
            str(len(episode.turns)),
            f"{episode.return_:g}",
            str(sum(len(turn.completion.ids_T) for turn in episode.turns)),
            str(max((len(turn.context) for turn in episode.turns), default=0)),
        )
    show(table)


def _turns(episode: Episode, texts: dict[int, str]) -> None:
    show(Text(f"{episode.id}  {episode.head.task}  {episode.status}, success {episode.success}"))
    for turn in episode.turns:
        edge = f"{turn.edge.kind}" + ("" if turn.edge.source is None else f" from turn {turn.edge.source}")
        head = f"turn {turn.index}.{turn.attempt}  {edge}  context {len(turn.context)} ids  reward {turn.reward:g}"
        said = " ".join(f"{texts.get(index, '')!r}·{index}" for index in turn.completion.ids_T.tolist())
        show(Text(head, style="bold"))
        for message in turn.messages:
            show(Text(f"  {message.role}: {message.content}", style="green"))
        show(Text(f"  {turn.completion.origin} ({turn.completion.finish_reason}): {said}", style="yellow"))
        if turn.completion.note:
            show(Text(f"  inexact: {turn.completion.note}", style="red"))
        if turn.failure is not None:
            failure = turn.failure
            show(Text(f"  failed at {failure.boundary}: {failure.kind}: {failure.message}", style="red"))
