"""`agentgym-tok drift MODEL`: what a text pipeline would have trained on instead of the sampled ids."""

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg
from rich.table import Table
from rich.text import Text

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.drift import Drift, DriftReport, TemplateReport, audit, draw, probe_template, read_chats
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import TraceStore

__all__ = ["Options", "run"]

_MOST_IDS, _MOST_BEFORE = 6, 32


class Options(Config):
    """Show which messages a chat template can append without changing the past, and what that costs a trace.

    No GPU and no model weights are needed, only a tokenizer.
    """

    model: CliPositionalArg[str] = Field(description="builtin, or a model's folder or id (extra hf)")
    trace: str | None = Field(default=None, description="folder of a run whose ids are held against its text")
    chats: str | None = Field(default=None, description="conversations without ids, one OpenAI chat object a line")
    output: Literal["table", "json"] = Field(default="table", description="table or json")
    picture: str | None = Field(default=None, description="file for a picture: .png, .svg or .pdf (extra plot)")
    examples: int = Field(default=2, ge=0, description="drifts of each class that the table shows")


def run(options: Options) -> int:
    """Probe, audit and print; return 0, since drift is a finding and no failure.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        FingerprintMismatch: The trace belongs to another chat format.
        DataCorrupt: A line of the conversations is none.
        MissingExtra: The picture needs matplotlib.
    """
    chat = chat_format(options.model)
    template = probe_template(chat)
    asked = options.trace is not None or options.chats is not None
    report = DriftReport.of(chat.reference, _reports(chat, options)) if asked else None
    if options.picture is not None:
        draw(options.picture, template, report)
    if options.output == "json":
        written: dict[str, Any] = {
            "template": template.to_dict(),
            "drift": None if report is None else report.to_dict(),
        }
        print(json.dumps(written, indent=1))
        return 0
    show(_template_table(template))
    if report is not None:
        _show_report(chat, report, options.examples)
    return 0


def _reports(chat: ChatFormat, options: Options) -> Iterator[DriftReport]:
    if options.trace is not None:
        with TraceStore(options.trace, mode="r") as store:
            yield from (audit(chat, episode) for episode in store.episodes())
    if options.chats is not None:
        for conversation in read_chats(options.chats):
            yield audit(chat, conversation.messages, tools=conversation.tools)


def _template_table(template: TemplateReport) -> Table:
    """Return what each kind of message does to the ids before it."""
    table = Table(title=f"{template.reference}: appended messages, dialect {template.dialect}", title_justify="left")
    for name in ("", "past", "class", "ids", "bridge", ""):
        table.add_column(name, justify="right" if name == "ids" else "left")
    words = {True: "kept", False: "changed", None: "refused"}
    for probe in template.probes:
        table.add_row(
            probe.name,
            words[probe.preserves],
            probe.kind or "",
            str(probe.count or ""),
            probe.bridge,
            Text(probe.detail),  # a text of the template may look like markup
        )
    return table


def _show_report(chat: ChatFormat, report: DriftReport, examples: int) -> None:
    if report.drifts:
        title = f"what a text pipeline makes of {report.turns:,} turns"
        table = Table(title=title, title_justify="left", min_width=len(title))
        table.add_column("class")
        for name in ("drifts", "ids"):
            table.add_column(name, justify="right")
        for kind, count in report.by_kind().items():
            table.add_row(kind, f"{len(report.of_kind(kind)):,}", f"{count:,}")
        show(table)
    else:
        print(f"no drift in {report.turns:,} turns")
    print(
        f"{report.wrong:,} of {report.sampled:,} sampled ids ({100 * report.rate:.1f} %) would be trained wrongly:"
        f" {report.altered:,} as other ids or never, {report.wrong - report.altered:,} after another past"
    )
    for kind in report.by_kind():
        for drift in report.of_kind(kind)[:examples]:
            _show_drift(chat, drift)


def _show_drift(chat: ChatFormat, drift: Drift) -> None:
    """Print the text before a difference, and both sides id by id."""
    place = f"{drift.episode[:10]} " if drift.episode else ""
    show(Text(f"{drift.kind}  {place}turn {drift.turn}, id {drift.position}: {drift.count} ids {drift.detail}", "bold"))
    before = repr("".join(map(chat.token_text, drift.before_T.tolist())))[1:-1][-_MOST_BEFORE:]
    for side, color, ids_T in (("exact", "green", drift.exact_T), ("text", "red", drift.text_T)):
        show(Text.assemble((f"  {side:<5} ", color), (before, "dim"), " | ", _ids(chat, ids_T)))


def _ids(chat: ChatFormat, ids_T: Ids) -> str:
    shown = [f"{chat.token_text(index)!r}·{index}" for index in ids_T[:_MOST_IDS].tolist()]
    more = [f"... {len(ids_T) - _MOST_IDS} more"] if len(ids_T) > _MOST_IDS else []
    return " ".join([*shown, *more]) or "(nothing)"
