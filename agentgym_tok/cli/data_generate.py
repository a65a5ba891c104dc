"""`agentgym-tok data generate WORLD`: generated games as files in the official format."""

from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.config import Config
from agentgym_tok.envs.alfworld.write_games import write_games

__all__ = ["Options", "run"]


class Options(Config):
    """Write generated games in the official layout, for any program that reads those files."""

    world: CliPositionalArg[Literal["alfworld"]] = Field(description="alfworld")
    folder: str = Field(description="where they go; must not hold other games")
    split: str = Field(default="train", description="train, valid_seen or valid_unseen")
    count: int | None = Field(default=None, ge=1, description="how many; the whole split without it")
    stock: bool = Field(default=False, description="add what the stock engine needs (extra alfworld)")


def run(options: Options) -> int:
    """Write the files; return 0.

    Raises:
        ConfigError: The folder holds other games.
        MissingExtra: `--stock` without the package alfworld.
    """
    files = write_games(options.folder, options.split, options.count, stock=options.stock)
    print(f"{len(files)} games of ALFWorld-synth {options.split} in {options.folder}")
    if not options.stock:
        print("for this library's own engine; --stock adds what the stock engine needs")
    return 0
