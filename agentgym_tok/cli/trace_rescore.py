"""`agentgym-tok trace rescore RUN --policy P`: prove logged log-probabilities by a model, or show where they differ."""

import json
from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg
from rich.table import Table

from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError
from agentgym_tok.policies import load_policy
from agentgym_tok.trace import TraceStore
from agentgym_tok.trace.rescore import TOLERANCE, Differences, Rescoring, rescore

__all__ = ["Options", "run"]


class Options(Config):
    """Score the logged contexts with a model, and compare with the logged log-probabilities.

    Exit status 1 where a difference is larger than the tolerance, or where nothing could be judged: tokens of another
    weight version are shown and not judged.
    """

    run: CliPositionalArg[str] = Field(description="folder of the run")
    policy: str = Field(description="a policy that scores: hf:PATH, or python:module:object with a method score")
    chat: str | None = Field(default=None, description="the run's chat format; the one that the run names without it")
    version: str | None = Field(default=None, description="weight version to judge; the policy's own without it")
    tolerance: float = Field(default=TOLERANCE, ge=0, description="largest difference that passes, in nats")
    episodes: int | None = Field(default=None, ge=1, description="how many rollouts, the first ones; all without it")
    output: Literal["table", "json"] = Field(default="table", description="table or json")


def run(options: Options) -> int:
    """Score and print; return 1 where a difference is too large or nothing was judged.

    Raises:
        ConfigError: The policy cannot score, or the run does not name its chat format.
        FingerprintMismatch: The chat format is another one than the run's.
        TraceError: There is no trace, or it cannot be read.
    """
    with TraceStore(options.run, mode="r") as store:
        name = options.chat or store.meta.chat
    if not name:
        raise ConfigError("the run does not name its chat format", where=options.run, fix="give it by --chat")
    policy = load_policy(options.policy, chat_format(name))
    found = rescore(
        options.run, policy, tolerance=options.tolerance, version=options.version, episodes=options.episodes
    )
    if options.output == "json":
        print(json.dumps(found.to_dict(), indent=1))
    else:
        _report(found)
    return 0 if found.ok else 1


def _report(found: Rescoring) -> None:
    table = Table(title="scored - logged, nats", title_justify="left")
    for column in ("kind", "weights", "tokens", "largest", "mean size", "mean", "KL (k3)", "beyond"):
        table.add_column(column, justify="left" if column in {"kind", "weights"} else "right")
    for one in found.differences:
        means = (f"{one.mean_abs:.2e}", f"{one.mean:+.2e}", f"{one.kl:.2e}")
        table.add_row(
            one.kind,
            _weights(one),
            f"{one.tokens:,}",
            f"{one.impossible:,} impossible" if one.impossible else f"{one.largest_abs:.2e}",
            *(means if one.impossible < one.tokens else ("-", "-", "-")),
            f"{100 * one.beyond / one.tokens:.2f} %",
        )
    show(table)
    for one in found.differences:
        print(_largest(one))
    for reason, count in sorted(found.not_scored.items()):
        print(f"not scored: {count} ids: {reason}")
    tokens = sum(one.tokens for one in found.judged)
    if not tokens:
        weights = "" if found.version is None else f" drawn by weights {found.version!r}"
        print(f"NOT proved: no log-probability{weights} in {found.episodes} episodes")
    elif found.ok:
        print(f"proved: {tokens} log-probabilities of {found.episodes} episodes within {found.tolerance:g} nats")
    else:
        beyond = sum(one.beyond for one in found.judged)
        print(f"NOT proved: {beyond} of {tokens} log-probabilities are more than {found.tolerance:g} nats away")


def _weights(one: Differences) -> str:
    return ("unnamed" if one.version is None else one.version) + ("" if one.judged else ", not judged")


def _largest(one: Differences) -> str:
    place = one.largest
    assert place is not None  # a kind without tokens is not listed
    token = f"{place.id} {place.text!r}" if place.text else str(place.id)
    scored = "impossible" if place.scored is None else f"{place.scored:.6f}"
    where = f"{place.episode}, turn {place.turn}, token {place.position}"
    return f"largest of {one.kind}, {_weights(one)}: {where} ({token}): logged {place.logged:.6f}, scored {scored}"
