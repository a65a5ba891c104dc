"""`agentgym-tok list`: what can be named."""

import os
from collections.abc import Collection, Iterator, Mapping

from rich.table import Table
from rich.text import Text

from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.worlds import ADAPTERS, WORLDS
from agentgym_tok.config import Config
from agentgym_tok.envs.alfworld import OfficialGames, SynthGames
from agentgym_tok.envs.searchqa import RETRIEVERS
from agentgym_tok.envs.searchqa.questions import DATASETS
from agentgym_tok.envs.searchqa.synth import SPLITS
from agentgym_tok.envs.webshop.data import prepared_folder
from agentgym_tok.envs.webshop.env import make_webshop_engine
from agentgym_tok.envs.webshop.splits import PRESETS
from agentgym_tok.errors import ConfigError, DataMissing
from agentgym_tok.learner.learners import LEARNERS
from agentgym_tok.plugins import GROUPS, Kind, declared
from agentgym_tok.policies.load import POLICIES
from agentgym_tok.skills import RETRIEVERS as SKILL_RETRIEVERS

__all__ = ["Options", "run"]

_SPLITS = ("train", "valid_seen", "valid_unseen")


class Options(Config):
    """List worlds, sources, splits and policies, and what other packages bring: those are tried out."""


def run(options: Options) -> int:
    """Print the names; return 0."""
    del options
    table = Table(title="worlds", title_justify="left")
    for name in ("world", "id for gym.make", "source", "splits and their tasks"):
        table.add_column(name)
    for world, source, splits in _splits():
        first = source == "synth"
        table.add_row(world if first else "", WORLDS[world] if first else "", source, splits)
    show(table)
    show("environments of other libraries: " + ", ".join(ADAPTERS))
    plain = {"expert", "explorer", "random"}
    show("policies: " + ", ".join(name if name in plain else f"{name}:..." for name in POLICIES))
    show("chat formats: builtin, or a model's folder or id (extra hf)")
    show("retrievers of searchqa: " + ", ".join(RETRIEVERS))
    show("datasets of searchqa: " + ", ".join(DATASETS))
    show("split presets of webshop: " + ", ".join(PRESETS))
    _plugins()
    return 0


def _plugins() -> None:
    """List the plug-ins; each one is imported, so that a broken one is named here."""
    builtin: Mapping[Kind, Collection[str]] = {
        "world": (*WORLDS, *ADAPTERS),
        "policy": POLICIES,
        "learner": LEARNERS,
        "retriever": RETRIEVERS,
        "skill retriever": SKILL_RETRIEVERS,
    }
    plugins = [plugin for kind in GROUPS for plugin in declared(kind, builtin[kind])]
    if not plugins:
        show("plug-ins: none")
        return
    table = Table(title="plug-ins", title_justify="left")
    for name in ("kind", "name", "package", "state"):
        table.add_column(name)
    for plugin in plugins:
        try:
            plugin.load()
            state = "ok"
        except ConfigError as error:
            state = f"broken: {error.got}"
        table.add_row(plugin.kind, Text(plugin.name), Text(f"{plugin.package} {plugin.version}"), Text(state))
    show(table)


def _splits() -> Iterator[tuple[str, str, str]]:
    yield "alfworld", "synth", ", ".join(f"{split} {len(SynthGames(split).tasks())}" for split in _SPLITS)
    yield "alfworld", "official", ", ".join(f"{split} {_official(split)}" for split in _SPLITS)
    yield "searchqa", "synth", ", ".join(f"{split} {count}" for split, count in SPLITS.items())
    yield "searchqa", "official", os.environ.get("SEARCHQA_DATA") or "not here"
    shop = {split: len(make_webshop_engine(split=split).tasks()) for split in PRESETS["canonical"]}
    yield "webshop", "synth", ", ".join(f"{split} {count}" for split, count in shop.items())
    yield "webshop", "official", _prepared()


def _prepared() -> str:
    try:
        return str(prepared_folder())
    except DataMissing:
        return "not here"
    except ConfigError as error:
        return f"{error.what}: {error.got}"


def _official(split: str) -> str:
    try:
        return str(len(OfficialGames(split).tasks()))
    except DataMissing:
        return "not here"
