"""Worlds that say messages instead of a text: who holds the conversation is the foreign program.

A turn reaches such a world as the JSON of its assistant message, and what comes back are the messages that the program
puts behind it. The ids stay those that were sampled: the quotation in the program is for the program alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange
from agentgym_tok.types import AssistantMessage, Message, ToolCall

__all__ = ["Conversation", "Said", "Spoken", "read_said", "said_of"]


@dataclass(frozen=True, slots=True)
class Spoken(TextObservation):
    """Hold what a program says to its model; `text` is the same for people.

    Args:
        messages: What is new, or the whole conversation where it is `fresh`.
        tools: Schemas of the tools that the program offers, as the OpenAI API has them.
        fresh: The program shows another past than what was said, so that a new conversation begins.
    """

    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """Hold a turn as a program gets it.

    Args:
        content: Its text; a call that cannot be read is text.
        reasoning: Its reasoning; None without any.
        calls: The calls that can be read, each with an id.
        closed: It ended by itself; False where it was cut off.
    """

    content: str
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    closed: bool = True

    @property
    def finish(self) -> str:
        """The turn's `finish_reason` in the OpenAI API."""
        if not self.closed:
            return "length"
        return "tool_calls" if self.calls else "stop"

    def command(self) -> str:
        """Return the command by which a turn reaches an engine."""
        return json.dumps({"role": "assistant", **self._parts()}, ensure_ascii=False)

    def message(self) -> dict[str, Any]:
        """Return the turn as the OpenAI API has it."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _json(call.arguments)}}
            for call in self.calls
        ]
        out: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning is not None:
            out["reasoning_content"] = self.reasoning
        if calls:
            out["tool_calls"] = calls
        return out

    def _parts(self) -> dict[str, Any]:
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in self.calls]
        return {"content": self.content, "reasoning": self.reasoning, "calls": calls, "closed": self.closed}


def said_of(turn: AssistantMessage) -> Said:
    """Return a turn as a program gets it."""
    calls, broken = [], []
    for place, call in enumerate(turn.tool_calls):
        if call.arguments is None or not call.name:
            broken.append(call.raw)
        else:  # programs answer calls by their ids, and some dialects have none
            calls.append(ToolCall(call.name, call.arguments, call.id or f"call{place:05d}"))
    return Said("".join([turn.content, *broken]), turn.reasoning, tuple(calls), turn.closed)


def read_said(command: str) -> Said:
    """Read a command; one that is no turn's JSON is a turn's text."""
    try:
        given = json.loads(command)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or given.keys() != {"role", "content", "reasoning", "calls", "closed"}:
        return Said(command)
    calls = tuple(ToolCall(call["name"], call["arguments"], call["id"]) for call in given["calls"])
    return Said(given["content"], given["reasoning"], calls, given["closed"])


def _json(arguments: Mapping[str, Any] | None) -> str:
    return json.dumps(arguments, ensure_ascii=False)


class Conversation:
    """Pass a program's messages and tools on, and turns back.

    It remembers the program's last tools, so that each environment needs one of its own; such environments cannot be
    cloned. The form is kept by a turn whose calls can all be read.

    Args:
        tools: Tools that are known before the first message.
    """

    name = "messages"

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.tools: Sequence[Mapping[str, Any]] = tuple(tools)
        self.fresh = False

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the program's first messages."""
        del task
        return self._spoken(observation)

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return the program's new messages, or all of them where it shows another past."""
        del task, history
        return self._spoken(observation)

    def _spoken(self, observation: TextObservation) -> list[Message]:
        if not isinstance(observation, Spoken):
            return [Message("user", observation.text)]
        self.tools, self.fresh = observation.tools, observation.fresh
        return list(observation.messages)

    def read(self, turn: AssistantMessage) -> Command:
        """Return the turn as JSON."""
        said = said_of(turn)
        return Command(said.command(), format_ok=len(said.calls) == len(turn.tool_calls))

    def answer(self, command: str, thought: str = "") -> str | Message:
        """Return the turn of a command: of its JSON, or of plain words. A thought is left out: it has no explorer."""
        del thought
        said = read_said(command)
        if not said.calls and said.reasoning is None:
            return said.content
        return Message("assistant", said.content, tool_calls=said.calls, reasoning=said.reasoning)
