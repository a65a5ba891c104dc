"""How a world's words become messages, and how a turn's text becomes a command.

`Transcript` keeps one growing conversation: the first prompt once, then one observation after each turn. `Step` opens
a fresh prompt for every step, with a short history inside (the protocol of verl-agent, GiGPO and SDAR). A world gives
both its own words (`Words`); users can pass their own. `presets` knows all of them by name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.types import AssistantMessage, Message, ToolCall, Trusted

__all__ = ["Command", "Exchange", "Prompting", "Step", "Transcript", "Words", "expert_turn"]


@dataclass(frozen=True, slots=True)
class Words:
    """Hold a world's own wording of its prompts.

    Args:
        system: Who the policy is, what it may do, and how it answers in a transcript.
        role: The opening sentence of a fresh prompt.
        answer: How to answer a fresh prompt.
        hidden: Admissible commands that a fresh prompt does not list.
        react: Who the policy is and what it may do, for prompting `react`; `role` where it is empty.
    """

    system: str
    role: str
    answer: str
    hidden: frozenset[str] = frozenset()
    react: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """Hold what a turn asks of the world.

    Args:
        text: The command.
        format_ok: The turn kept the protocol's form.
        call: The tool call that it was read from; its answer is then a tool message.
    """

    text: str
    format_ok: bool
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Hold one observation and the command that answered it."""

    observation: str
    command: Command


@runtime_checkable
class Prompting(Protocol):
    """Turn observations into messages and turns into commands; stateless, so that environments can be cloned.

    One whose turns end at strings also has `stop`, the tuple of them: `TokenEnv.stop`.
    """

    @property
    def name(self) -> str:
        """The name that runs record."""
        ...

    @property
    def fresh(self) -> bool:
        """Every step opens a new conversation."""
        ...

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Schemas of the tools that a conversation opens with."""
        ...

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the messages of the first prompt."""
        ...

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return the messages after a step: new ones, or a whole fresh prompt."""
        ...

    def read(self, turn: AssistantMessage) -> Command:
        """Read the command from a turn."""
        ...

    def answer(self, command: str, thought: str = "") -> str | Message:
        """Return the turn that an expert would write for a command, as `ChatFormat.encode_turn` takes it.

        Args:
            command: The command.
            thought: What the expert says before it, where it says anything; see `expert_turn`.
        """
        ...


def expert_turn(prompting: Prompting, command: str, thought: str) -> str | Message:
    """Return the turn of an expert who thinks aloud.

    A thought quotes the world, and the world must not speak in the expert's place: one that holds a tag or a line break
    is left out, so that the turn is read as the command that the expert meant.

    Args:
        prompting: Writes the turn.
        command: The command.
        thought: What comes before it; may be empty.
    """
    return prompting.answer(command, "" if _MARKUP.search(thought) else thought)


_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_MARKUP = re.compile(r"<[^ ]|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CJK = re.compile("[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class Transcript:
    """Keep one conversation that only grows; a turn ends in `<action>COMMAND</action>`, after any reasoning.

    A turn without the tags is read as a command as a whole, and `format_ok` is false.

    Args:
        words: The world's wording.
    """

    words: Words
    name: str = "transcript"
    fresh: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the system prompt and the first observation."""
        del task
        return [Message("system", self.words.system, trusted=True), Message("user", observation.text)]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return the observation."""
        del task, history
        return [Message("user", observation.text)]

    def read(self, turn: AssistantMessage) -> Command:
        """Read the only `<action>` block; several or none are read as far as possible and marked."""
        blocks = _ACTION.findall(turn.content)
        return Command((blocks[-1] if blocks else turn.content).strip(), format_ok=len(blocks) == 1)

    def answer(self, command: str, thought: str = "") -> str:
        """Return the command between its tags, behind the thought."""
        return f"{thought}<action>{command}</action>"


@dataclass(frozen=True, slots=True)
class Step:
    """Open a fresh prompt for every step: role, task, the last exchanges, the present, what can be done, how to answer.

    The structure, the reading of a turn (inner text of the last `<action>`, lower case, else the last characters) and
    its validity (both tag pairs, no CJK characters) are those of verl-agent; the words are our own.

    Args:
        words: The world's wording.
        history: How many exchanges the prompt repeats, as text.
        fallback: How many last characters of a turn without `<action>` are read as its command.
    """

    words: Words
    history: int = 2
    fallback: int = 30
    name: str = "step"
    fresh: bool = True
    tools: tuple[Mapping[str, Any], ...] = ()

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the prompt without a history; the first observation itself holds the task."""
        del task
        return [
            Message.compose(
                "user",
                Trusted(f"{self.words.role}\nYou see now: "),
                observation.text,
                *self._choices(observation),
                Trusted(self.words.answer),
            )
        ]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return a whole prompt with the last exchanges."""
        first = max(0, len(history) - self.history)
        recent: list[str] = []
        for place, exchange in enumerate(history[first:], start=first + 1):
            recent += [Trusted(f"[Observation {place}: '"), exchange.observation]
            recent += [Trusted(f"', Action {place}: '"), exchange.command.text, Trusted("']\n")]
        steps = len(history)
        return [
            Message.compose(
                "user",
                Trusted(f"{self.words.role} Your task: "),
                str(task.get("goal", task["task"])),
                Trusted(f"\nYou have taken {steps} step{'s' * (steps != 1)}. The last {steps - first}:\n"),
                *recent,
                Trusted(f"This is step {steps + 1}. You see now: "),
                observation.text,
                *self._choices(observation),
                Trusted(self.words.answer),
            )
        ]

    def _choices(self, observation: TextObservation) -> list[str]:
        shown = [command for command in observation.admissible_commands if command not in self.words.hidden]
        if not shown:
            return [Trusted("\n")]
        return [Trusted("\nYou can: ["), "\n".join(f"'{command}'" for command in shown), Trusted("].\n")]

    def read(self, turn: AssistantMessage) -> Command:
        """Read the last `<action>` block, lower-cased."""
        blocks = _ACTION.findall(turn.content)
        text = blocks[-1].strip() if blocks else turn.content[-self.fallback :]
        reasoned = turn.reasoning is not None and turn.reasoning_closed
        return Command(text.lower(), format_ok=bool(blocks) and reasoned and not _CJK.search(turn.content))

    def answer(self, command: str, thought: str = "") -> str:
        """Return the command between its tags, after the reasoning block that the protocol asks for, be it empty."""
        return f"<think>{thought}\n</think>\n<action>{command}</action>"
