"""ALFWorld games whose tasks are told in the words of people who saw them done."""

from dataclasses import replace
from typing import Any

from agentgym_tok.envs.alfworld.game import TASK_PREFIX, Game, GameSet
from agentgym_tok.errors import DataMissing, unknown_name

__all__ = ["DescribedGames"]


class DescribedGames:
    """Offer each game once for each goal that a person wrote for it.

    A task id is that of the game and `#k` behind it, for the goal with index k; without `#k` the first one is meant.

    Args:
        games: The games.
        own: Offer each game by its own task, too; its id is without `#k` then.
    """

    def __init__(self, games: GameSet, *, own: bool = False) -> None:
        self.source = games.source
        self._games, self._own = games, own
        self._tasks: tuple[str, ...] | None = None

    def tasks(self) -> tuple[str, ...]:
        """Return the ids of all goals of all games, those of a game together.

        Raises:
            DataMissing: Games are without such goals: a part of the tasks must not pass for all of them.
        """
        if self._tasks is None:
            counts = {task: len(self._games.goals(task)) for task in self._games.tasks()}
            bare = [task for task, count in counts.items() if not count]
            if bare:
                raise _undescribed(self.source, f"{len(bare)} of {len(counts)} games without goals, such as {bare[0]}")
            self._tasks = tuple(
                name
                for task, count in counts.items()
                for name in (*((task,) if self._own else ()), *(f"{task}#{index}" for index in range(count)))
            )
        return self._tasks

    def goals(self, task: str) -> tuple[str, ...]:
        """Return the goals that people wrote for a game."""
        return self._games.goals(task.partition("#")[0])

    def game(self, task: str) -> Game:
        """Return a game, with another task line where a goal is meant.

        Raises:
            UnknownName: No game, or no goal of it, has this id.
            DataMissing: Nobody described the game.
        """
        name, mark, index = task.partition("#")
        if self._own and not mark:
            return self._games.game(task)
        game, goals = self._games.game(name), self._games.goals(name)
        if not goals:
            raise _undescribed(self.source, f"none for {game.gamefile or name}")
        indices = [str(number) for number in range(len(goals))]
        index = index if mark else "0"
        if index not in indices:
            raise unknown_name("human goal", index, indices, where=name)
        return replace(game, task=f"{name}#{index}", task_line=f"{TASK_PREFIX}{goals[int(index)]}")

    def __getstate__(self) -> dict[str, Any]:
        # Whoever unpickles lists the goals again, should they be needed.
        return {**self.__dict__, "_tasks": None}


def _undescribed(where: str, got: str) -> DataMissing:
    return DataMissing(
        "goals in people's words are missing",
        where=where,
        got=got,
        expected="traj_data.json beside the game file",
        fix='run `agentgym-tok data get alfworld --goals` for source="official"; elsewhere play with goal="template"',
    )
