"""`agentgym-tok list`: what can be named."""

from rich.table import Table

from agentgym_tok.cli.tables import show
from agentgym_tok.cli.worlds import WORLDS
from agentgym_tok.config import Config
from agentgym_tok.envs.alfworld import OfficialGames, SynthGames
from agentgym_tok.errors import DataMissing
from agentgym_tok.policies.load import POLICIES

__all__ = ["Options", "run"]

_SPLITS = ("train", "valid_seen", "valid_unseen")


class Options(Config):
    """List worlds, sources, splits and policies."""


def run(options: Options) -> int:
    """Print the names; return 0."""
    del options
    table = Table(title="worlds", title_justify="left")
    for name in ("world", "id for gym.make", "source", *_SPLITS):
        table.add_column(name)
    for world, env_id in WORLDS.items():
        table.add_row(world, env_id, "synth", *(str(len(SynthGames(split).tasks())) for split in _SPLITS))
        table.add_row("", "", "official", *map(_official, _SPLITS))
    show(table)
    show("policies: " + ", ".join(name if name in {"expert", "random"} else f"{name}:..." for name in POLICIES))
    show("chat formats: builtin, or a model's folder or id (extra hf)")
    return 0


def _official(split: str) -> str:
    try:
        return str(len(OfficialGames(split).tasks()))
    except DataMissing:
        return "not here"
