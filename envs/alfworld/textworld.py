"""The stock ALFWorld engine, TextWorld with Fast Downward, for those who want to check the native one against it."""

import contextlib
import importlib
import json
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

from agentgym_tok.envs.alfworld.game import TASK_PREFIX, Game, GameSet, SingleGame
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.errors import CloneUnsupported, DataMissing, MissingExtra, ResetNeeded, WorldError

__all__ = ["StockEngine"]

# Commands that change nothing in the world begin with these words.
_IDLE = {"look", "inventory", "help", "examine"}

# Each loaded copy of Fast Downward maps 34 MB that the process never gives back: an engine leaves its own to the next.
_left_behind: list[Any] = []

# Fast Downward's translator keeps its state in module globals, sys.argv and sys.stdout.
_translator = threading.Lock()


class StockEngine:
    """Play ALFWorld's game files in the stock engine.

    It gives the same bytes as `ALFWorldEngine`, thousands of times slower: about a second for a reset and a tenth for
    a step. Like the native engine it ends an episode with the first win.

    Args:
        games: Games that were read from files.

    Raises:
        MissingExtra: The stock engine is not installed.
    """

    def __init__(self, games: GameSet) -> None:
        self.source = games.source
        self._games = games
        self._env, library = _make_env()
        weakref.finalize(self, _left_behind.append, library)
        self._game: Game | None = None
        self._admissible: tuple[str, ...] = ()
        self._followed: int | None = None
        self._running = False

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Make an engine that plays one official `game.tw-pddl` file."""
        return cls(SingleGame(Game.from_file(path)))

    def tasks(self) -> Sequence[str]:
        """Return the ids of all games."""
        return self._games.tasks()

    def reset(self, task: str | None = None) -> TextObservation:
        """Start a game; None starts the current one again, or the first one.

        Raises:
            UnknownName: No game has this id.
            DataMissing: The game was not read from a file.
            WorldError: The stock engine failed.
        """
        if task is None:
            task = self._game.task if self._game else self.tasks()[0]
        game = self._games.game(task)
        if game.gamefile is None:
            raise DataMissing(
                "the stock engine plays game files only",
                where=task,
                got="a game without a file",
                fix="play it with the native engine, or write the games to a folder and name that",
            )
        self._running = False
        data = json.loads(game.gamefile.read_bytes())
        with _failures_named(task), _undisturbed_process():
            self._env.load(data)
            state = self._env.reset()
        self._game, self._followed, self._running = game, 0, True
        return self._observe(state, valid=None)

    def step(self, command: str) -> TextObservation:
        """Give the world one command; one that it does not accept changes nothing, and it says so.

        Raises:
            ResetNeeded: No episode is running.
            WorldError: The stock engine failed.
        """
        if not self._running or self._game is None:
            raise self._not_running()
        command = command.strip()
        valid = command in self._admissible
        with _failures_named(self._game.task):
            state, _, _ = self._env.step(command)
        if valid:
            changed = command.split()[0] not in _IDLE
            self._followed = self._game.follow(self._followed, command, changed=changed)
        return self._observe(state, valid=valid)

    def clone(self) -> NoReturn:
        """Refuse: the stock engine keeps its state where nobody can copy it.

        Raises:
            CloneUnsupported: Always.
        """
        raise CloneUnsupported(
            "the stock ALFWorld engine cannot be copied",
            where=type(self).__name__,
            fix="use the native engine, or reset another one and give it the same commands",
        )

    def __reduce__(self) -> NoReturn:
        self.clone()

    def task_info(self) -> Mapping[str, Any]:
        """Return `task`, `task_type`, `goal` and `gamefile`.

        Raises:
            ResetNeeded: No game was started yet.
        """
        if self._game is None:
            raise self._not_running()
        game = self._game
        goal = game.task_line.removeprefix(TASK_PREFIX)
        return {"task": game.task, "task_type": game.task_type, "goal": goal, "gamefile": str(game.gamefile)}

    def expert_command(self) -> str | None:
        """Return the next command of the game's walkthrough, while all but looking around so far stands in it."""
        return self._game.next_command(self._followed) if self._running and self._game else None

    def _observe(self, state: Any, *, valid: bool | None) -> TextObservation:
        won = bool(state["won"])
        self._admissible = tuple(state["admissible_commands"])
        self._running = not won
        return TextObservation(state["feedback"], float(won), won, won, valid, self._admissible)

    def _not_running(self) -> ResetNeeded:
        task = self._game.task if self._game else None
        return ResetNeeded("no ALFWorld episode is running", where=task, fix="call reset() first")


def _make_env() -> tuple[Any, Any]:
    """Return a stock environment and the copy of Fast Downward that it plays with."""
    # ALFWorld names a folder of its own in ALFWORLD_DATA when it is imported.
    folder = os.environ.get("ALFWORLD_DATA")
    try:
        fast_downward, textworld, pddl, alfred = map(
            importlib.import_module,
            ("fast_downward", "textworld", "textworld.envs.pddl", "alfworld.agents.environment.alfred_tw_env"),
        )
    except ImportError as error:
        raise MissingExtra(
            "the stock ALFWorld engine is not installed",
            got=str(error),
            fix='pip install "agentgym-tok[alfworld]"',
        ) from error
    finally:
        if folder is None:
            os.environ.pop("ALFWORLD_DATA", None)
    library = _left_behind.pop() if _left_behind else fast_downward.load_lib()
    untyped: Any = pddl.PddlEnv

    class Env(untyped):  # type: ignore[misc]
        def __init__(self, infos: Any) -> None:
            # The parent's own would load another copy of Fast Downward, and do nothing else.
            textworld.Environment.__init__(self, infos)
            self.downward_lib = library

    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    return alfred.AlfredDemangler(Env(infos), shuffle=False), library


@contextlib.contextmanager
def _undisturbed_process() -> Iterator[None]:
    with _translator:
        arguments, out = sys.argv, sys.stdout
        try:
            yield
        finally:
            sys.argv, sys.stdout = arguments, out


@contextlib.contextmanager
def _failures_named(task: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise WorldError(
            "the stock ALFWorld engine failed", where=task, got=f"{type(error).__name__}: {error}", fix="reset it"
        ) from error
