"""Prompts that hold skills, for students that read them: Skill-GRPO, and tests with skills."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange, Prompting
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.harness.starts import TokenGym
from agentgym_tok.skills import Retriever, SkillQuery
from agentgym_tok.types import AssistantMessage, Message

__all__ = ["SkillPrompts", "with_skills"]


class SkillPrompts:
    """Put skills before the first message of the user, as `find_seam` puts them for a teacher.

    They are text of whoever wrote them: no control token that they spell is ever one.

    Args:
        inner: The prompting without skills.
        retriever: Chooses them for the task that a prompt opens; asked each time, so that another one may take its
            place between two rollouts.
    """

    def __init__(self, inner: Prompting, retriever: Callable[[], Retriever]) -> None:
        self._inner, self._retriever = inner, retriever
        self.stop = tuple(getattr(inner, "stop", ()))

    @property
    def name(self) -> str:
        """The name that runs record."""
        return f"{self._inner.name}+skills"

    @property
    def fresh(self) -> bool:
        """Every step opens a new conversation."""
        return self._inner.fresh

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Schemas of the tools that a conversation opens with."""
        return self._inner.tools

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the messages of the first prompt."""
        return self._told(self._inner.open(observation, task), task)

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return the messages after a step; a prompt that opens anew has the skills again."""
        messages = self._inner.follow(observation, task, history)
        return self._told(messages, task) if self.fresh else messages

    def read(self, turn: AssistantMessage) -> Command:
        """Read the command from a turn."""
        return self._inner.read(turn)

    def answer(self, command: str, thought: str = "") -> str | Message:
        """Return the turn that an expert would write."""
        return self._inner.answer(command, thought)

    def _told(self, messages: list[Message], task: Mapping[str, Any]) -> list[Message]:
        text = self._retriever().retrieve(SkillQuery.of_info(task)).text.strip()
        place = next((place for place, message in enumerate(messages) if message.role == "user"), None)
        if not text or place is None:
            return messages
        return [*messages[:place], _before(messages[place], f"{text}\n\n"), *messages[place + 1 :]]


def with_skills(make_env: Callable[[], TokenGym], retriever: Callable[[], Retriever]) -> Callable[[], TokenGym]:
    """Return what makes the same environments with skills in their prompts.

    Args:
        make_env: Makes token environments.
        retriever: See `SkillPrompts`.
    """

    def make() -> TokenGym:
        env = make_env()
        inner = env.unwrapped
        assert isinstance(inner, TokenEnv)  # the harness refuses others
        inner.prompting = SkillPrompts(inner.prompting, retriever)
        return env

    return make


def _before(message: Message, text: str) -> Message:
    if not message.trusted:
        return replace(message, content=text + message.content)
    moved = tuple((start + len(text), end + len(text)) for start, end in message.untrusted)
    return replace(message, content=text + message.content, untrusted=((0, len(text)), *moved))
