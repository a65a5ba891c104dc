"""`agentgym-tok doctor POLICY`: examine an engine, and say what to do about each failure."""

import json
from typing import Any

from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentgym_tok.cli.progress import Amounts
from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.doctor import CHECKS, Diagnosis, Finding, examine, no_answer
from agentgym_tok.errors import AgentGymTokError, ConfigError, MissingExtra, UnknownName
from agentgym_tok.policies import load_policy
from agentgym_tok.types import Scorer

__all__ = ["Options", "run"]

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


class Options(Config):
    """Examine an engine with a few hundred short requests, and say what to do about each failure.

    Exit status 1 where a check failed. A check is skipped where nothing could be known; with --reference more can.
    """

    policy: CliPositionalArg[str] = Field(description="hf:PATH, vllm:URL#MODEL, openai:URL#MODEL, python:module:name")
    chat: str = Field(default="builtin", description="builtin, or the model's folder or id (extra hf)")
    reference: str | None = Field(default=None, description="hf:PATH of the same weights, to compare with")
    json_: bool = Field(default=False, alias="json", description="print JSON")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, values: Any) -> Any:
        # `json` is a method of pydantic's models, and a field that both names fill would be listed as `--json-` too.
        return {name.rstrip("_"): value for name, value in values.items()} if isinstance(values, dict) else values


def run(options: Options) -> int:
    """Examine and print; return 1 where a check failed.

    Raises:
        ConfigError: The policy is an expert, or the reference cannot score.
        UnknownName: No policy has this name.
        FingerprintMismatch: The reference knows other ids than the chat format.
    """
    chat = chat_format(options.chat)
    reference = None if options.reference is None else load_policy(options.reference, chat)
    if reference is not None and not isinstance(reference, Scorer):
        what = "this policy cannot score given ids"
        raise ConfigError(what, where="--reference", got=options.reference, expected="hf:PATH")
    try:
        policy = load_policy(options.policy, chat)
    except (ConfigError, UnknownName, MissingExtra):
        raise
    except AgentGymTokError as error:  # an engine that does not answer is a finding
        found = no_answer(options.policy, error)
    else:
        with Amounts() as progress:
            found = examine(policy, chat, reference, on_check=lambda done: progress.show("checks", done, len(CHECKS)))
    _report(found, options)
    return 0 if found.ok else 1


def _report(found: Diagnosis, options: Options) -> None:
    if options.json_:
        print(json.dumps(found.to_dict(), indent=1))
        return
    asked = f"{found.policy}: {found.requests} requests, {found.tokens:,} tokens"
    if Console().is_terminal:
        show(_table(asked, found.findings))
    else:
        print(asked)
        for one in found.findings:
            print(f"{one.status:<8} {one.name}: {one.found}")
            if one.advice:
                print(f"         next: {one.advice}")
    print(found.verdict)


def _table(title: str, findings: tuple[Finding, ...]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for column in ("check", "", "what was found, and what to do"):
        table.add_column(column)
    for one in findings:
        text = Text(one.found)
        if one.advice:
            text.append(f"\nnext: {one.advice}", style="italic")
        table.add_row(one.name, Text(one.status, style=_COLOURS[one.status]), text)
    return table
