"""The official ALFWorld games, read from the folder that ALFWorld's own tools use."""

import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentgym_tok.envs.alfworld.game import Game, read_goals
from agentgym_tok.envs.alfworld.synth_tasks import SOURCE as GENERATED
from agentgym_tok.envs.alfworld.synth_tasks import TRIAL_NAME
from agentgym_tok.errors import DataMissing, unknown_name

__all__ = ["SPLITS", "OfficialGames"]

SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")
"""The splits; `valid_train` holds leftovers that no published score uses."""

_GAME_FILE = "game.tw-pddl"
_GET = "run `agentgym-tok data get alfworld` and set ALFWORLD_DATA to the folder that holds json_2.1.1"
_KEPT = 64


class OfficialGames:
    """Offer one split of the official games, in the order of their ids.

    A task id is `<split>/<kind of task>/<trial>`. Games are read when they are asked for; the last ones are kept. Where
    the folder holds generated games (`agentgym-tok data generate alfworld`), `source` says so: no score mistakes them.

    Args:
        split: One of `SPLITS`.
        folder: The folder that holds `json_2.1.1`, or that folder itself; by default the environment variable
            ALFWORLD_DATA, as for ALFWorld's own tools.

    Raises:
        UnknownName: There is no such split.
        DataMissing: The folder is not there or holds no games of this split.
    """

    def __init__(self, split: str, folder: str | Path | None = None) -> None:
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS, where=type(self).__name__)
        self.split = split
        self.root = _find_root(split, folder)
        first = next(_list_tasks(self.root, split))
        self.source = GENERATED if TRIAL_NAME.fullmatch(first.rpartition("/")[2]) else "ALFWorld"
        self._tasks: tuple[str, ...] | None = None
        self._kept: OrderedDict[str, Game] = OrderedDict()

    def tasks(self) -> tuple[str, ...]:
        """Return the ids of all games of the split, sorted."""
        if self._tasks is None:
            self._tasks = tuple(sorted(_list_tasks(self.root, self.split)))
        return self._tasks

    def game(self, task: str) -> Game:
        """Return one game.

        Raises:
            UnknownName: The split has no such game.
            DataCorrupt: The game file is not what it should be.
        """
        game = self._kept.pop(task, None)
        if game is None:
            self._require(task)
            game = Game.from_file(self.root / task / _GAME_FILE, task=task)
        self._kept[task] = game
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return game

    def goals(self, task: str) -> tuple[str, ...]:
        """Return the goals that people wrote for a game, from `traj_data.json`; none where it is not there.

        Raises:
            UnknownName: The split has no such game.
            DataCorrupt: The file is there, but it is none of ALFRED's.
        """
        self._require(task)
        return read_goals(self.root / task / _GAME_FILE)

    def _require(self, task: str) -> None:
        tasks = self.tasks()
        place = bisect_left(tasks, task)
        if tasks[place : place + 1] != (task,):
            raise unknown_name("task", task, tasks, where=f"{self.root}, split {self.split}")

    def __getstate__(self) -> dict[str, Any]:
        # Whoever unpickles reads the listing and the games again, should they be needed.
        return {**self.__dict__, "_tasks": None, "_kept": OrderedDict()}


def _find_root(split: str, folder: str | Path | None) -> Path:
    """Return the folder that holds the split."""
    place = folder or os.environ.get("ALFWORLD_DATA")
    if not place:
        raise DataMissing("no folder of ALFWorld games is named", got="ALFWORLD_DATA is not set", fix=_GET)
    roots = [Path(place, name) for name in ("json_2.1.1", "json_2.1.2", ".")]
    found = next((root for root in roots if any(_list_tasks(root, split))), None)
    if found is None:
        raise DataMissing(
            f"no ALFWorld games of the split {split}",
            where=Path(place).absolute(),
            got="a folder without them" if Path(place).is_dir() else "no folder",
            expected=f"json_2.1.1/{split}/<kind of task>/<trial>/{_GAME_FILE}",
            fix=_GET,
        )
    return found


def _list_tasks(root: Path, split: str) -> Iterator[str]:
    # Listed whole: this generator may be left before its end, and an open folder with it.
    try:
        kinds = list(os.scandir(root / split))
    except (FileNotFoundError, NotADirectoryError):
        return
    for kind in kinds:
        # ALFWorld leaves out ALFRED's tasks with movable receptacles or sliced objects: its rules do not cover them.
        if kind.is_dir() and "movable" not in kind.name and "Sliced" not in kind.name:
            for trial in list(os.scandir(kind)):
                if os.path.isfile(f"{trial.path}/{_GAME_FILE}"):  # noqa: PTH113 - a Path for each of 3,553 is slow
                    yield f"{split}/{kind.name}/{trial.name}"
