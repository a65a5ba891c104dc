"""What a subagent acts in: a question that it answers, or a copy of its caller's world."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.envs.prompting import Command, Exchange, Prompting
from agentgym_tok.errors import CloneUnsupported
from agentgym_tok.types import AssistantMessage, Message

__all__ = ["Errand", "Report", "Visit", "Visiting"]


class Errand:
    """Be given a task in words; what is said first is the answer, and ends it.

    Args:
        task: The words.
        source: The name that scores carry.
        score: Gives the answer's reward; None gives 0, and the subagent inherits its caller's credit.
    """

    def __init__(self, task: str, source: str, score: Callable[[str], float] | None = None) -> None:
        self.source = source
        self._task = task
        self._score = score

    def tasks(self) -> Sequence[str]:
        """Return the only task."""
        return (self._task,)

    def reset(self, task: str | None = None) -> TextObservation:
        """Return the words."""
        del task
        return TextObservation(self._task, success=None)

    def step(self, command: str) -> TextObservation:
        """Take the answer."""
        reward = 0.0 if self._score is None else float(self._score(command))
        return TextObservation("", reward, terminated=True, success=None, valid=True)

    def clone(self) -> Self:
        """Refuse: nobody starts a group of errands."""
        raise CloneUnsupported("an errand is run once", where="Errand")

    def task_info(self) -> Mapping[str, Any]:
        """Return the task."""
        return {"task": self._task}

    def expert_command(self) -> str | None:
        """Know no answer."""
        return None


@dataclass(frozen=True, slots=True)
class Report:
    """Open with a prompt and the task; a turn as a whole is the answer.

    Args:
        prompt: Who the subagent is.
    """

    prompt: str
    name: str = "report"
    fresh: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the prompt, and the task, which is text of the caller and never trusted."""
        del task
        return [Message("system", self.prompt, trusted=True), Message("user", observation.text)]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return the words."""
        del task, history
        return [Message("user", observation.text)]

    def read(self, turn: AssistantMessage) -> Command:
        """Take what was said."""
        return Command(turn.content.strip(), format_ok=bool(turn.content.strip()))

    def answer(self, command: str, thought: str = "") -> str:
        """Return the words; a thought is left out."""
        del thought
        return command


class Visit:
    """Go on in a copy of a world, from where it stands.

    Args:
        engine: The copy.
        seen: What it said last.
    """

    def __init__(self, engine: TextEngine, seen: TextObservation) -> None:
        self.source = engine.source
        self._engine, self._seen = engine, seen

    def tasks(self) -> Sequence[str]:
        """Return the world's task."""
        return (str(self._engine.task_info()["task"]),)

    def reset(self, task: str | None = None) -> TextObservation:
        """Return what the world said last."""
        del task
        return replace(self._seen, reward=0.0, valid=None)

    def step(self, command: str) -> TextObservation:
        """Give the copy a command; its rewards are not the caller's."""
        return replace(self._engine.step(command), reward=0.0, success=None)

    def clone(self) -> Self:
        """Copy the copy."""
        return type(self)(self._engine.clone(), self._seen)

    def task_info(self) -> Mapping[str, Any]:
        """Return the world's facts."""
        return self._engine.task_info()

    def expert_command(self) -> str | None:
        """Ask the world's own expert."""
        return self._engine.expert_command()


@dataclass(frozen=True, slots=True)
class Visiting:
    """Prompt as the caller is prompted, with an errand in front of the first words.

    Args:
        inner: The caller's prompting.
        prompt: Who the subagent is.
        task: The errand.
    """

    inner: Prompting
    prompt: str
    task: str

    @property
    def name(self) -> str:
        """The caller's."""
        return self.inner.name

    @property
    def fresh(self) -> bool:
        """As the caller's."""
        return self.inner.fresh

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """As the caller's."""
        return self.inner.tools

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the caller's first prompt with the errand."""
        first, *rest = self.inner.open(observation, task)
        if first.role == "system":
            first = replace(first, content=f"{first.content}\n\n{self.prompt}")
        else:
            first = Message.compose("system", self.prompt)
            rest = self.inner.open(observation, task)
        errand = Message("user", self.task)
        # Many templates take no two messages of the user in a row.
        if rest and rest[0].role == "user" and not rest[0].trusted:
            return [first, replace(rest[0], content=f"{self.task}\n\n{rest[0].content}"), *rest[1:]]
        return [first, errand, *rest]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return what the caller would be told."""
        return self.inner.follow(observation, task, history)

    def read(self, turn: AssistantMessage) -> Command:
        """Read as the caller is read."""
        return self.inner.read(turn)

    def answer(self, command: str, thought: str = "") -> str | Message:
        """Say as the caller would."""
        return self.inner.answer(command, thought)
