"""The native ALFWorld engine: the text world of ALFWorld without TextWorld, PDDL planners or a compiler."""

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from agentgym_tok.envs.alfworld import rules, text
from agentgym_tok.envs.alfworld.described import DescribedGames
from agentgym_tok.envs.alfworld.game import TASK_PREFIX, Game, GameSet, SingleGame
from agentgym_tok.envs.alfworld.room import Action, State
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.errors import ResetNeeded, unknown_name

__all__ = ["ALFWorldEngine"]

_GOALS = ("template", "human", "both")
# ALFWorld before release 0.4, and so every older few-shot prompt, says "put" where it now says "move".
_PUT = re.compile(r"\Aput (.+?) (?:in/on|in|on) (.+)\Z")


class ALFWorldEngine:
    """Play ALFWorld's text games, byte for byte as the stock engine does.

    An episode ends with its first win. The stock engine itself plays on, and can lose again; every published protocol
    stops there.

    Args:
        games: The games.
        put_alias: Accept `put X in/on Y`, `put X in Y` and `put X on Y` as `move X to Y`.
        goal: `"template"` states the task in the words of the game file, `"human"` in those of people who saw it done:
            each of their goals is a task; see `DescribedGames`. `"both"` has the tasks of either.
    """

    def __init__(
        self, games: GameSet, *, put_alias: bool = False, goal: Literal["template", "human", "both"] = "template"
    ) -> None:
        if goal not in _GOALS:
            raise unknown_name("goal", goal, _GOALS, where=type(self).__name__)
        self.source = games.source
        self._games = games if goal == "template" else DescribedGames(games, own=goal == "both")
        self._put_alias = put_alias
        self._running = False
        self._task: str | None = None
        self._game: Game
        self._state: State
        self._commands: dict[str, Action]
        self._admissible: tuple[str, ...]
        self._followed: int | None
        self._won: bool

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> Self:
        """Make an engine that plays one official `game.tw-pddl` file; the options are those of the class."""
        return cls(SingleGame(Game.from_file(path)), **options)

    def tasks(self) -> Sequence[str]:
        """Return the ids of all games, or of all goals that people wrote for them.

        Raises:
            DataMissing: Goals of people are wanted, and games are without them.
            DataCorrupt: Such goals cannot be read.
        """
        return self._games.tasks()

    def reset(self, task: str | None = None) -> TextObservation:
        """Start a game; None starts the current one again, or the first one.

        Raises:
            UnknownName: No game, or no human goal, has this id.
            DataMissing: The goal should be a human one, and the game has none.
        """
        if task is None:
            task = self._task or self.tasks()[0]
        game = self._game if task == self._task else self._games.game(task)
        # A goal has one name, though it may be asked for by two.
        self._task, self._game, self._running, self._followed = game.task, game, True, 0
        self._enter(game.room.start)
        words = text.welcome(rules.first_look(game.room), game.task_line)
        return TextObservation(words, admissible_commands=self._admissible)

    def step(self, command: str) -> TextObservation:
        """Give the world one command; one that it does not accept changes nothing, and it says so.

        Raises:
            ResetNeeded: No episode is running.
        """
        if not self._running:
            raise self._not_running()
        command = command.strip()
        if self._put_alias:
            command = _PUT.sub(r"move \1 to \2", command)
        action = self._commands.get(command)
        words = text.NOTHING_HAPPENS
        if action is not None:
            state, words = rules.perform(self._game.room, self._state, action)
            self._followed = self._game.follow(self._followed, command, changed=state is not self._state)
            if state is not self._state:
                self._enter(state)
        won = self._won
        self._running = not won
        return TextObservation(words, float(won), won, won, action is not None, self._admissible)

    def clone(self) -> Self:
        """Copy the engine in mid-episode; the copy and the original go on independently."""
        # All that an engine holds is immutable or shared on purpose, so the copy need not go deeper.
        return copy.copy(self)

    def task_info(self) -> Mapping[str, Any]:
        """Return `task`, `task_type`, `goal` and, where the game was read from a file, `gamefile`.

        Raises:
            ResetNeeded: No game was started yet.
        """
        if self._task is None:
            raise self._not_running()
        goal = self._game.task_line.removeprefix(TASK_PREFIX)
        facts = {"task": self._task, "task_type": self._game.task_type, "goal": goal}
        return facts if self._game.gamefile is None else {**facts, "gamefile": str(self._game.gamefile)}

    def expert_command(self) -> str | None:
        """Return the next command of the game's walkthrough, while all that changed the world so far stands in it."""
        return self._game.next_command(self._followed) if self._running else None

    def _enter(self, state: State) -> None:
        room = self._game.room
        self._state = state
        self._won = rules.solved(room, state)
        self._commands = rules.commands(room, state)
        self._admissible = tuple(sorted(self._commands))

    def _not_running(self) -> ResetNeeded:
        return ResetNeeded("no ALFWorld episode is running", where=self._task, fix="call reset() first")
