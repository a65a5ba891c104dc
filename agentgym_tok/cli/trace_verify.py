"""`agentgym-tok trace verify RUN`: prove a trace, or say where it breaks."""

import json
from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg
from rich.table import Table

from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.trace_prune import pruned_lines
from agentgym_tok.cli.worlds import chat_format, own_format
from agentgym_tok.config import Config
from agentgym_tok.trace import Accounting, Verification, verify
from agentgym_tok.trace.exchange.prune import pruned

__all__ = ["Options", "accounting_table", "run"]

_MOST_SHOWN = 20


class Options(Config):
    """Replay every law over a trace and print the accounting; exit status 1 where anything is broken."""

    run: CliPositionalArg[str] = Field(description="folder of the run")
    chat: str | None = Field(default=None, description="chat format to replay with; the one the run names without it")
    output: Literal["table", "json"] = Field(default="table", description="table or json")


def run(options: Options) -> int:
    """Verify and print; return 1 where a law is broken.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        FingerprintMismatch: The chat format given is another one than the run's.
    """
    chat = chat_format(options.chat) if options.chat is not None else own_format(options.run)
    found = verify(options.run, chat)
    if options.output == "json":
        print(json.dumps({**found.to_dict(), "pruned": pruned(options.run)}, indent=1))
    else:
        report(found)
        for line in pruned_lines(options.run):
            print(line)
    return 0 if found.ok else 1


def report(found: Verification) -> None:
    """Print a verification for people."""
    show(accounting_table(found.accounting))
    turns = f"{found.replayed} of {found.turns} turns made again from their messages"
    print(f"{found.episodes} episodes, {found.turns} turns, {found.ids} ids in {found.shards} shards; {turns}")
    if found.redacted:
        print(f"{found.redacted} turns are redacted: what was taken out is known by its digest alone")
    for breach in found.breaches[:_MOST_SHOWN]:
        place = breach.episode[:10] + ("" if breach.turn is None else f" turn {breach.turn}")
        print(f"BREACH law {breach.law} {place}: {breach.message}")
    if len(found.breaches) > _MOST_SHOWN:
        print(f"... {len(found.breaches) - _MOST_SHOWN} more; --output json lists all")
    for accounting in found.accounting:
        whole = accounting.sampled + accounting.demonstration + accounting.forced
        told = whole - abs(accounting.unaccounted)
        print(f"accounting {accounting.objective}: {100 * told / whole if whole else 100:.1f} % of {whole} turn ids")
    if found.running:
        print(f"{found.running} episodes are still running, or their writer died")
    if not found.ok:
        print(f"NOT verified: {len(found.breaches)} breaches")
    elif found.turns and not found.replayed:
        print("verified: laws 1, 2, 3, 5 and 6 hold; law 4 was NOT tried, for want of the chat format (--chat)")
    else:
        print("verified: every law holds")


def accounting_table(accountings: tuple[Accounting, ...]) -> Table:
    """Return where every id of every turn went, one column for each objective."""
    table = Table(title="accounting of turn ids", title_justify="left")
    table.add_column("")
    for accounting in accountings:
        table.add_column(accounting.objective, justify="right")
    lines = [dict(accounting.table()) for accounting in accountings]
    for name in dict.fromkeys(name for line in lines for name in line):
        table.add_row(name, *(str(line.get(name, 0)) for line in lines))
    return table
