"""Messages side by side: which of them say the same, however they are written, and what lies between those."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agentgym_tok.types import Message, ToolCall

__all__ = ["Alignment", "Entry", "Likeness", "align", "likeness", "quotes", "squash"]

Likeness: TypeAlias = Literal["same", "stripped"]
"""`stripped`: it says the same, and its reasoning is gone."""

QUOTATION = 24
"""Fewest characters of a quotation, blanks not counted; shorter words stand in any text by chance."""

_LAST_TAG = re.compile(r"<[^<>]*>$")
_WORDS = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold one message of an earlier conversation.

    Args:
        message: The message; an answer as it was read from its ids.
        text: An answer as one text, markup included; empty for other messages.
    """

    message: Message
    text: str = ""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Hold what became of an earlier conversation, up to the last answer that both have.

    Args:
        before: Messages that both begin with.
        after: Messages that both end with.
        gone: Messages between those in the earlier one.
        new: Messages between those in the later one.
        stripped: The reasoning of an answer is gone.
    """

    before: int
    after: int
    gone: int
    new: int
    stripped: bool


def squash(text: str) -> str:
    """Return a text without its blanks: templates, parsers and clients trim and wrap."""
    return "".join(text.split())


def quotes(text: str, quotation: str) -> bool:
    """Tell whether a text contains another one, or is it; both squashed."""
    return bool(quotation) and (quotation == text or (len(quotation) >= QUOTATION and quotation in text))


def likeness(earlier: Entry, later: Message) -> Likeness | None:
    """Say whether a message is an earlier one, quoted: blanks, call ids and the writing of arguments do not count.

    Args:
        earlier: The earlier one.
        later: As somebody quotes it.
    """
    said = earlier.message
    if said == later:
        return "same"
    if said.role != later.role:
        return None
    content = squash(later.content)
    if squash(said.content) == content and _same_calls(said, later):
        reasoning, kept = squash(said.reasoning or ""), squash(later.reasoning or "")
        if reasoning == kept:
            return "same"
        return None if kept else "stripped"
    return _as_text(earlier, content) if content and not later.tool_calls and not later.reasoning else None


def _as_text(earlier: Entry, content: str) -> Likeness | None:
    """Say the same of an answer that a client without fields for calls and reasoning keeps as one text."""
    said, text = earlier.message, squash(earlier.text)
    parts = [squash(part) for part in (said.content, *(call.raw for call in said.tool_calls))]
    if not any(parts) or not all(part in content for part in parts):
        return None
    for whole in (text, _LAST_TAG.sub("", text)):  # with and without the stop token
        if whole == content:
            return "same"
        if said.reasoning and whole.endswith(content) and squash(said.reasoning) in whole[: -len(content)]:
            return "stripped"
    return None


def _same_calls(said: Message, later: Message) -> bool:
    calls = said.tool_calls
    if len(calls) != len(later.tool_calls) and (later.content or later.tool_calls):
        calls = tuple(call for call in calls if call.status == "ok")  # `AssistantMessage.message` leaves others out
    return len(calls) == len(later.tool_calls) and all(map(_same_call, calls, later.tool_calls))


def _same_call(said: ToolCall, later: ToolCall) -> bool:
    if said.name != later.name:
        return False
    if said.arguments is None or later.arguments is None:
        return said.arguments is later.arguments and squash(later.raw) in squash(said.raw)
    return bool(_meaning(said.arguments) == _meaning(later.arguments))


def _meaning(value: Any) -> Any:
    """Return a value as far as dialects agree on it: many write `false` and 1 as the texts "False" and "1"."""
    if isinstance(value, Mapping):
        return {key: _meaning(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_meaning(item) for item in value]
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    return _WORDS.get(text, text)


def align(earlier: Sequence[Entry], later: Sequence[Message]) -> Alignment:
    """Lay two conversations side by side, each without its system messages and ended by the same answer."""
    shorter = min(len(earlier), len(later))
    before = 0
    stripped = False
    while before < shorter and (alike := likeness(earlier[before], later[before])):
        stripped |= alike == "stripped"
        before += 1
    after = 0
    while after < shorter - before and (alike := likeness(earlier[-1 - after], later[-1 - after])):
        stripped |= alike == "stripped"
        after += 1
    kept = before + after
    return Alignment(before, after, len(earlier) - kept, len(later) - kept, stripped)
