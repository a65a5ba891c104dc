"""Messages side by side: what somebody changed between the turn as it was said and the history as it was kept."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from agentgym_tok.drift.report import DriftClass
from agentgym_tok.types import Message, ToolCall

__all__ = ["Conversation", "change"]

# Templates write Python's words where a model wrote JSON's.
_QUOTES_AND_BLANKS = re.compile(r"[\s\"']")
_WORDS = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class Conversation:
    """Hold what one side of a comparison was rendered from.

    Args:
        messages: All of it.
        tools: JSON schemas.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(
        cls, messages: Sequence[Message | Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> Self:
        """Read messages of any shape.

        Raises:
            ChatError: A message has no role or no text.
        """
        return cls(tuple(Message.of(message) for message in messages), tuple(tools or ()))

    def opened(self) -> Self:
        """Return it with a system message in front, an empty one where it has none, so that places correspond."""
        return self if self.has_system else replace(self, messages=(Message("system", ""), *self.messages))

    @property
    def has_system(self) -> bool:
        """It begins with a system message."""
        return bool(self.messages) and self.messages[0].role == "system"

    @property
    def assistants(self) -> tuple[int, ...]:
        """The places of the assistant's messages."""
        return tuple(place for place, message in enumerate(self.messages) if message.role == "assistant")

    def same_tools(self, other: "Conversation") -> bool:
        """Tell whether both declare the same tools, in the same order and with the same keys in the same order."""
        return json.dumps(self.tools, default=dict) == json.dumps(other.tools, default=dict)


def change(said: Message, kept: Message | None) -> DriftClass | None:
    """Name what became of a message; None where its meaning was kept, however it is written.

    Args:
        said: As it was said.
        kept: As the history has it; None where it has nothing in this place.
    """
    if kept is None or said.role != kept.role:
        return "history_edit"
    if said.role != "assistant":
        if not _same_words(said.content, kept.content):
            return "system_swap" if said.role == "system" else "history_edit"
        return "call_id" if _differ(said.tool_call_id, kept.tool_call_id) else None
    if _is_quoted(said, kept):
        return None
    if not _same_words(said.content, kept.content):
        return "history_edit"
    if len(said.tool_calls) != len(kept.tool_calls):
        return "history_edit"
    pairs = list(zip(said.tool_calls, kept.tool_calls, strict=True))
    if not all(_same_call(mine, theirs) for mine, theirs in pairs):
        return "history_edit"
    if not _same_words(said.reasoning or "", kept.reasoning or ""):
        return "history_edit" if (kept.reasoning or "").strip() else "reasoning_strip"
    return "call_id" if any(_differ(mine.id, theirs.id) for mine, theirs in pairs) else None


def _is_quoted(said: Message, kept: Message) -> bool:
    """Tell whether a turn with reasoning or calls was kept as one text, with everything that it said."""
    if kept.reasoning or kept.tool_calls or not (said.reasoning or said.tool_calls):
        return False
    calls = [call.raw for call in said.tool_calls]
    parts = [said.reasoning or "", said.content, *calls]
    return all(calls) and all(part.strip() in kept.content for part in parts)


def _differ(one: str | None, other: str | None) -> bool:
    return bool(one) and bool(other) and one != other


def _same_words(one: str, other: str) -> bool:
    return one == other or one.split() == other.split()


def _same_call(one: ToolCall, other: ToolCall) -> bool:
    if one.arguments is None or other.arguments is None:
        return _bare(one.raw) == _bare(other.raw)
    return one.name == other.name and bool(_meaning(one.arguments) == _meaning(other.arguments))


def _bare(raw: str) -> str:
    """Return the text of a call that cannot be read, without what its ways of writing differ in."""
    return _QUOTES_AND_BLANKS.sub("", raw).casefold()


def _meaning(value: Any) -> Any:
    """Return a value as far as its ways of writing agree: `False` for `false`, "1" for 1, nothing for an empty text."""
    if isinstance(value, Mapping):
        items = {key: _meaning(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item != ""}
    if isinstance(value, (list, tuple)):
        return [_meaning(item) for item in value]
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    return _WORDS.get(text, text)
