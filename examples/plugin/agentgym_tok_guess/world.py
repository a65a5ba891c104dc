"""Guess a number: an engine of texts, and the token environment around it."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from agentgym_tok import ChatFormat
from agentgym_tok.envs import TextObservation, TokenEnv, Words
from agentgym_tok.envs.draws import Draws
from agentgym_tok.errors import ResetNeeded, unknown_name

__all__ = ["GuessEngine", "GuessWorld"]

WORDS = Words(
    system="Find the hidden number. Each turn, write one guess as <action>guess NUMBER</action>.",
    role="Find the hidden number, by one guess a turn.",
    answer="Write one guess as <action>guess NUMBER</action>.",
)


class GuessEngine:
    """Hide a number, and say of each guess whether it is too low or too high.

    Args:
        limit: The largest number that may be hidden.
        tasks: How many numbers are hidden, one a task.
    """

    source = "Guess"

    def __init__(self, limit: int = 100, tasks: int = 20) -> None:
        self._limit = limit
        self._tasks = tuple(f"guess/{place}" for place in range(tasks))
        self._task = self._tasks[0]
        self._running = False

    @property
    def _number(self) -> int:
        return Draws(self._task, self._limit).between(1, self._limit)

    def tasks(self) -> Sequence[str]:
        """Return the ids of the tasks."""
        return self._tasks

    def reset(self, task: str | None = None) -> TextObservation:
        """Hide the number of a task."""
        if task is not None:
            if task not in self._tasks:
                raise unknown_name("task", task, self._tasks, where=self.source)
            self._task = task
        self._running = True
        return TextObservation(f"A number from 1 to {self._limit} is hidden.")

    def step(self, command: str) -> TextObservation:
        """Judge a guess."""
        if not self._running:
            raise ResetNeeded("no episode is running", where=self.source, fix="call reset")
        written = re.fullmatch(r"guess (\d{1,9})", command)
        if written is None:
            return TextObservation("Write guess NUMBER.", valid=False)
        guess = int(written[1])
        if guess == self._number:
            self._running = False
            return TextObservation("That is it.", reward=1.0, terminated=True, success=True, valid=True)
        return TextObservation(f"{guess} is too {'low' if guess < self._number else 'high'}.", valid=True)

    def clone(self) -> Self:
        """Copy the engine in mid-episode."""
        return copy.copy(self)

    def task_info(self) -> Mapping[str, Any]:
        """Return the task's id and its goal in words."""
        return {"task": self._task, "goal": f"find the number from 1 to {self._limit}"}

    def expert_command(self) -> str | None:
        """Return the right guess."""
        return f"guess {self._number}" if self._running else None


class GuessWorld(TokenEnv):
    """Guess a number, in token ids.

    Args:
        chat: Tokenizer and template.
        limit: The largest number that may be hidden.
        prompting: `"transcript"`, `"step"`, `"react"`, or your own.
        max_steps: Guesses after which the episode is truncated.
        max_context: Most ids of an observation.
    """

    def __init__(
        self,
        chat: ChatFormat,
        *,
        limit: int = 100,
        prompting: str = "transcript",
        max_steps: int = 10,
        max_context: int = 32_768,
    ) -> None:
        super().__init__(GuessEngine(limit), chat, prompting, words=WORDS, max_steps=max_steps, max_context=max_context)
