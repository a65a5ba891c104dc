"""The prompting `react`: a thought and an action in each turn, an observation behind it (Yao et al. 2022)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange, Words
from agentgym_tok.types import AssistantMessage, Message

__all__ = ["React"]

_FORM = """Every turn, write two lines:
Thought: what you know and what to do next
Action: one command
The answer of the world follows as an observation."""

_LINE = re.compile(r"^[ \t]*(Thought|Action|Observation)(?:[ \t]+\d+)?[ \t]*:[ \t]*(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class React:
    """Keep one conversation of `Thought:`, `Action:` and `Observation n:` lines.

    The first action counts. What a turn writes behind an observation of its own invention is not read, and a turn
    without an action is read as an empty command.

    Args:
        words: The world's wording.
    """

    words: Words
    name: str = "react"
    fresh: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the system prompt and the first observation."""
        del task
        system = f"{self.words.react or self.words.role}\n{_FORM}"
        return [Message("system", system, trusted=True), Message("user", observation.text)]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return the observation with its number."""
        del task
        return [Message("user", f"Observation {len(history)}: {observation.text}")]

    def read(self, turn: AssistantMessage) -> Command:
        """Read the first `Action:` line before any `Observation:`."""
        names, actions = [], []
        for name, rest in _LINE.findall(turn.content):
            if name == "Observation":
                break
            names.append(name)
            actions += [rest.strip()] if name == "Action" else []
        return Command(actions[0] if actions else "", format_ok=names == ["Thought", "Action"])

    def answer(self, command: str, thought: str = "") -> str:
        """Return the command in its line, after the thought, or one that says that there is none."""
        return f"Thought: {thought.strip() or 'the next step is clear.'}\nAction: {command}"
