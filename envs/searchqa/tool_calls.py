"""The prompting `transcript`: one growing conversation in which the policy calls `search` and `answer` as tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange
from agentgym_tok.envs.searchqa.commands import command, read_command
from agentgym_tok.envs.searchqa.prompts import SearchWords
from agentgym_tok.types import AssistantMessage, Message, ToolCall

__all__ = ["ToolCalls"]

_ARGUMENTS: Final[Mapping[str, str]] = {"search": "query", "answer": "text"}
_CALL_ID = "call00000"  # nine letters and digits: some templates refuse other ids


def _tool(name: str, says: str, argument: str, means: str) -> Mapping[str, Any]:
    properties = {argument: {"type": "string", "description": means}}
    parameters = {"type": "object", "properties": properties, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": says, "parameters": parameters}}


_TOOLS = (
    _tool("search", "Find passages.", "query", "What to look for."),
    _tool("answer", "Give the final answer; this ends the task.", "text", "The answer, in a few words."),
)


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """Keep one conversation of tool calls, written in the chat template's own dialect.

    The first call that can be read is carried out, and a tool's message answers it. The form is kept by one call and no
    other.

    Args:
        words: The wording.
        tools: Schemas of the two tools.
    """

    words: SearchWords
    tools: tuple[Mapping[str, Any], ...] = _TOOLS
    name: str = "transcript"
    fresh: bool = False

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the system prompt and the question."""
        del task
        return [Message("system", self.words.system, trusted=True), Message("user", observation.text)]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return the tool's message, or a reminder where no tool was called."""
        del task
        call = history[-1].command.call
        if call is None:
            return [Message("user", self.words.reminder, trusted=True)]
        return [Message("tool", observation.text, tool_call_id=call.id or None, name=call.name)]

    def read(self, turn: AssistantMessage) -> Command:
        """Read the first call that can be read."""
        call = next((call for call in turn.tool_calls if call.status == "ok"), None)
        if call is None:
            return Command("", format_ok=False)
        text = (call.arguments or {}).get(_ARGUMENTS.get(call.name, ""))
        if not isinstance(text, str):
            return Command("", format_ok=False, call=call)
        return Command(command(call.name, text), format_ok=len(turn.tool_calls) == 1, call=call)

    def answer(self, command: str, thought: str = "") -> Message:
        """Return the call as a message, behind the thought, which the chat format writes as its template does.

        Its text begins with a blank, as the words of a passage do: behind a blank they have the ids that they have
        there, so that who imitates an expert copies. Reading drops it.
        """
        asked = read_command(command)
        if asked is None:
            return Message("assistant", command)
        call = ToolCall(asked.verb, {_ARGUMENTS[asked.verb]: f" {asked.text}"}, _CALL_ID)
        return Message("assistant", thought, tool_calls=(call,))
