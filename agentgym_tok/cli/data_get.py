"""`agentgym-tok data get WORLD`: a world's official data."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from agentgym_tok.config import Config
from agentgym_tok.envs.alfworld.download import GOALS_URL, OFFICIAL_URL, get_alfworld

__all__ = ["Options", "run"]


class Options(Config):
    """Download a world's official data; an interrupted download goes on where it stopped."""

    world: CliPositionalArg[Literal["alfworld"]] = Field(description="alfworld")
    folder: str | None = Field(default=None, description="where it goes; ALFWORLD_DATA or ~/.cache/alfworld without it")
    goals: bool = Field(default=False, description="also the human-written goals (traj_data.json)")
    url: str = Field(default=OFFICIAL_URL, description="a mirror of the games")
    goals_url: str = Field(default=GOALS_URL, description="a mirror of the goals")


def run(options: Options) -> int:
    """Download and unpack; return 0.

    Raises:
        DataMissing: The server has no such file, or cannot be reached.
        DataCorrupt: What came is no ALFWorld archive.
    """
    folder = Path(options.folder or os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld").expanduser()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    for url in [options.url, *([options.goals_url] if options.goals else [])]:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(Path(url).name, total=None)
            done = get_alfworld(
                folder,
                url=url,
                progress=lambda got, total: bar.update(task, completed=got, total=total),  # noqa: B023
            )
        print(f"{done.files} files from {url}\nsha256 {done.sha256}")
    print(f"export ALFWORLD_DATA={folder}")
    return 0
