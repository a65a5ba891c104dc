"""`agentgym-tok play WORLD`: a person plays, and sees what a policy would: ids and spans, in colour."""

import sys

from pydantic import Field
from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.text import Text

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.worlds import WorldOptions, chat_format, env_maker, tokens_of
from agentgym_tok.envs.text_action import TextAction
from agentgym_tok.tokens import Context, Span

__all__ = ["Options", "run", "span_text"]

_COLOURS = {
    "prompt": "cyan",
    "observation": "green",
    "tool": "magenta",
    "sampled": "bold yellow",
    "demonstration": "bold yellow",
    "forced": "red",
}


class Options(WorldOptions):
    """Play a world by typing commands; an empty line shows what is admissible, `quit` leaves."""

    world: CliPositionalArg[str] = Field(description="alfworld, searchqa, webshop, or a plug-in's")
    task: str | None = Field(default=None, description="id or index of the task; drawn by the seed without it")
    seed: int = Field(default=0, ge=0, description="seed of the choice of the task")
    ids: bool = Field(default=True, description="show the ids beside the text")


def run(options: Options) -> int:
    """Play one episode on the terminal; return 0."""
    console = Console(highlight=False)
    chat = chat_format(options.chat)
    env = TextAction(env_maker(options.world, options, chat)())
    tokens = tokens_of(env)
    task = int(options.task) if options.task is not None and options.task.isdigit() else options.task
    _, info = env.reset(seed=options.seed, options=None if task is None else {"task": task})
    console.print(f"[bold]{info['task']}[/bold]  ({tokens.engine.source})")
    legend = "  ".join(f"[{colour}]{origin}[/]" for origin, colour in _COLOURS.items())
    console.print(legend)
    shown = _show(console, chat, tokens.context, 0, ids=options.ids)
    while True:
        command = _ask(console)
        if command is None or command == "quit":
            return 0
        if not command:
            console.print("\n".join(info["admissible_commands"]) or "this world lists no commands", markup=False)
            continue
        _, reward, terminated, truncated, info = env.step(command)
        shown = _show(console, chat, tokens.context, shown, ids=options.ids)
        if terminated or truncated:
            end = "solved" if info["success"] else f"over ({info['truncation'] or 'by the world'})"
            console.print(f"[bold]{end}[/bold], reward {reward}, {len(tokens.context)} ids in the context")
            return 0


def _ask(console: Console) -> str | None:
    try:
        if sys.stdin.isatty():
            return console.input("[bold]> [/bold]").strip()
        line = sys.stdin.readline()
        return line.strip() if line else None
    except EOFError:
        return None


def _show(console: Console, chat: ChatFormat, context: Context, shown: int, *, ids: bool) -> int:
    """Print the spans that are new, and return how many there are; a fresh prompt is new as a whole."""
    spans = context.spans
    for span in spans[shown if len(spans) > shown else 0 :]:
        console.print(span_text(chat, span, ids=ids))
    return len(spans)


def span_text(chat: ChatFormat, span: Span, *, ids: bool) -> Text:
    """Return a span for a terminal: every token's text in its origin's colour, its id small behind it."""
    colour = _COLOURS[span.origin]
    text = Text()
    for index in span.ids_T.tolist():
        # Control characters of a world must not reach the terminal.
        piece = "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in chat.token_text(index))
        text.append(piece.removesuffix("\n"), style=f"{colour} underline" if index in chat.control_ids else colour)
        if ids:
            text.append(f"·{index} ", style="dim")
        if piece.endswith("\n"):
            text.append("\n")
    return text
