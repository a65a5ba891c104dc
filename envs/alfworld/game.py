"""One ALFWorld game: a room, a task and a way to win, read from an official game file or from its parts."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from agentgym_tok.envs.alfworld.problem import read_problem
from agentgym_tok.envs.alfworld.room import Room
from agentgym_tok.errors import DataCorrupt, DataMissing, unknown_name

__all__ = ["TASK_PREFIX", "Game", "GameSet", "SingleGame", "read_goals"]

TASK_PREFIX = "Your task is to: "
"""How the last line of every first observation begins."""

_GET = "run `agentgym-tok data get alfworld`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Hold one game.

    Args:
        task: Id of the task.
        task_line: The last line of the first observation, `Your task is to: ...`.
        goal_object: Class of the object to bring, such as `"pencil"`.
        goal_target: Class of the receptacle to bring it to, or of the lamp to bring it under.
        walkthrough: Commands that win, exactly with the last one.
        room: What the rules need.
        gamefile: The file that the game was read from.
    """

    task: str
    task_line: str
    goal_object: str
    goal_target: str
    walkthrough: tuple[str, ...]
    room: Room
    gamefile: Path | None = None

    @classmethod
    def from_file(cls, path: str | Path, *, task: str | None = None) -> Self:
        """Read an official `game.tw-pddl` file.

        Args:
            path: The file.
            task: Id of the task; by default the names of the three folders around the file, which in the official
                tree are the split, the kind of task and the trial.

        Raises:
            DataMissing: There is no such file.
            DataCorrupt: The file is cut off, changed, or of an older ALFWorld release.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise DataMissing("the game file does not exist", where=path, fix=f"check the path, or {_GET}") from error
        except UnicodeDecodeError as error:
            raise _corrupt(path, f"bytes that are no text: {error}", "JSON in UTF-8") from error
        return cls.from_json(text, task=task or "/".join(path.absolute().parts[-4:-1]), where=path)

    @classmethod
    def from_json(cls, text: str, *, task: str, where: Path | None = None) -> Self:
        """Read the text of a `game.tw-pddl` file.

        Args:
            text: One JSON object.
            task: Id of the task.
            where: The file that the text was read from.

        Raises:
            DataCorrupt: The text is cut off, changed, or of an older ALFWorld release.
        """
        place = where or task
        try:
            parts = json.loads(text)
        except json.JSONDecodeError as error:
            raise _corrupt(place, f"{len(text)} characters that are no JSON: {error}", "one JSON object") from error
        if not isinstance(parts, dict):
            raise _corrupt(place, f"JSON of type {type(parts).__name__}", "one JSON object")
        kinds = {"pddl_problem": str, "grammar": str, "walkthrough": list, "solvable": bool}
        bad = [f"{key} ({kind.__name__})" for key, kind in kinds.items() if not isinstance(parts.get(key), kind)]
        if bad:
            raise _corrupt(place, f"the keys {', '.join(parts)}", f"a value under {', '.join(bad)}")
        if not parts["solvable"]:
            raise _corrupt(place, '"solvable": false', "a game that can be won")
        return cls.from_problem(
            parts["pddl_problem"],
            task_text=_task_line(parts["grammar"], place),
            walkthrough=parts["walkthrough"],
            task=task,
            gamefile=where,
        )

    @classmethod
    def from_problem(
        cls,
        pddl_problem: str,
        *,
        task_text: str,
        walkthrough: Sequence[str],
        task: str,
        gamefile: Path | None = None,
    ) -> Self:
        """Make a game from its parts.

        Args:
            pddl_problem: The room and the goal in PDDL, as under `pddl_problem` in a game file.
            task_text: The last line of the first observation, `Your task is to: ...`.
            walkthrough: Commands that win, exactly with the last one.
            task: Id of the task.
            gamefile: The file that the parts were read from.

        Raises:
            DataCorrupt: The parts are none of an ALFWorld game.
        """
        where = gamefile or task
        if not all(isinstance(command, str) for command in walkthrough):
            raise _corrupt(where, "a walkthrough that holds more than texts", "a list of commands")
        problem = read_problem(pddl_problem, where=where)
        return cls(
            task=task,
            task_line=task_text,
            goal_object=problem.goal.object_type.removesuffix("type"),
            goal_target=problem.goal.target_type.removesuffix("type"),
            walkthrough=tuple(walkthrough),
            room=Room.from_problem(problem, where=where),
            gamefile=gamefile,
        )

    @property
    def task_type(self) -> str:
        """Return one of the six official names, such as `"pick_and_place_simple"`."""
        return self.room.goal_type

    def follow(self, done: int | None, command: str, *, changed: bool) -> int | None:
        """Say how far a player follows the walkthrough after one more accepted command.

        Args:
            done: Commands of the walkthrough done before; None for a player who has left it.
            command: The command.
            changed: It changed the world; what changes nothing does not lead away.
        """
        if command == self.next_command(done):
            return (done or 0) + 1
        return None if changed else done

    def next_command(self, done: int | None) -> str | None:
        """Return the next command of the walkthrough after `done` of them; None at its end or away from it."""
        return None if done is None or done >= len(self.walkthrough) else self.walkthrough[done]

    @property
    def goals(self) -> tuple[str, ...]:
        """Read the human-written goals in `traj_data.json` beside the game file; none where there is no such file.

        Raises:
            DataCorrupt: The file is there, but it is none of ALFRED's.
        """
        return () if self.gamefile is None else read_goals(self.gamefile)


def read_goals(gamefile: Path) -> tuple[str, ...]:
    """Read the goals that people wrote for a game, without reading the game.

    Args:
        gamefile: The game's file; they stand in `traj_data.json` beside it.

    Returns:
        The goals; none where there is no such file.

    Raises:
        DataCorrupt: The file is there, but it is none of ALFRED's.
    """
    path = gamefile.with_name("traj_data.json")
    try:
        annotations = json.loads(path.read_bytes())["turk_annotations"]["anns"]
        return tuple(" ".join(annotation["task_desc"].split()) for annotation in annotations)
    except FileNotFoundError:
        return ()
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _corrupt(path, f"{type(error).__name__}: {error}", "turk_annotations.anns[i].task_desc") from error


class GameSet(Protocol):
    """Offer games by task id."""

    @property
    def source(self) -> str:
        """Return the name that every score carries, such as `"ALFWorld"`."""
        ...

    def tasks(self) -> Sequence[str]:
        """Return the ids of all games, in an order that never depends on the machine."""
        ...

    def game(self, task: str) -> Game:
        """Return one game.

        Raises:
            UnknownName: No game has this id.
        """
        ...

    def goals(self, task: str) -> tuple[str, ...]:
        """Return the goals that people wrote for a game, without reading the game; most sets have none.

        Raises:
            UnknownName: No game has this id.
            DataCorrupt: They are there, but cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class SingleGame:
    """Offer one game alone.

    Args:
        only: The game.
        source: The name every score carries.
    """

    only: Game
    source: str = "ALFWorld-file"

    def tasks(self) -> Sequence[str]:
        """Return the id of the game."""
        return (self.only.task,)

    def game(self, task: str) -> Game:
        """Return the game.

        Raises:
            UnknownName: It has another id.
        """
        if task != self.only.task:
            raise unknown_name("task", task, self.tasks(), where=self.source)
        return self.only

    def goals(self, task: str) -> tuple[str, ...]:
        """Return the goals that people wrote for the game; see `GameSet.goals`."""
        return self.game(task).goals


_TASK_LINE = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("(?:[^"\\]|\\.)*+")')


def _task_line(grammar: str, where: object) -> str:
    # Before release 0.4 the command was "put X in/on Y": the same room, but other transcripts.
    if "move {o} to {r}" not in grammar:
        raise DataCorrupt(
            "a game file of an older ALFWorld release",
            where=where,
            got="a grammar without the command `move {o} to {r}`",
            expected="a game of release 0.4",
            fix=_GET,
        )
    found = _TASK_LINE.search(grammar)
    try:
        return str(json.loads(found[1] if found else ""))
    except json.JSONDecodeError as error:
        got = "a grammar without a readable task"
        raise _corrupt(where, got, '"task": [{"rhs": "Your task is to: ..."}]') from error


def _corrupt(where: object, got: str, expected: str) -> DataCorrupt:
    return DataCorrupt(
        "not a file of ALFWorld's games",
        where=where,
        got=got,
        expected=expected,
        fix=f"the file was changed: {_GET} again",
    )
