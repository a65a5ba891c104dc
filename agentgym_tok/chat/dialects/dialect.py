"""What every dialect offers, and the parts that they share: bodies of calls, and reasoning at the head of a turn."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.tools import Tools, decode_json, decode_members
from agentgym_tok.chat.dialects.turn import Mark, TurnText
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.types import AssistantMessage, CallStatus, ToolCall

__all__ = [
    "THINK",
    "Body",
    "Dialect",
    "Early",
    "Reasoning",
    "arguments_of",
    "call_of",
    "function_of",
    "json_end",
    "message_of",
    "split_reasoning",
    "tell_end",
]

THINK = ("<think>", "</think>")


class Early(Protocol):
    """Tell what is certain of a turn while its ids arrive."""

    def push(self, index: int) -> None:
        """Take the next id."""
        ...

    def finish(self, stop: int | None) -> None:
        """Take what is left of the turn, and its stop token if it has one."""
        ...


class Dialect(Protocol):
    """Read the turns of one way to write reasoning and tool calls."""

    @property
    def name(self) -> str:
        """The name by which `ChatFormat.from_pretrained(dialect=...)` asks for it."""
        ...

    @property
    def signs(self) -> tuple[tuple[str, ...], ...]:
        """Texts that tell the dialect: all of one group stand in the template, or in the vocabulary's added tokens."""
        ...

    @property
    def delimiters(self) -> tuple[str, ...]:
        """Texts that structure a turn, and may be tokens of their own; what only ends a turn is not among them."""
        ...

    @property
    def reasoning(self) -> tuple[tuple[str, str], ...]:
        """Openers and closers of reasoning."""
        ...

    def read(self, turn: TurnText, tools: Tools) -> AssistantMessage:
        """Read a turn; any bytes at all give an answer, in time linear in their number."""
        ...

    def early(self, tokenizer: Tokenizer, tools: Tools, said: Said, opened: bool | None) -> Early | None:
        """Return what reads a turn while it arrives; None where only the end tells.

        Args:
            tokenizer: Knows the bytes of each id.
            tools: The tools.
            said: Where to tell it.
            opened: As in `TurnText`.
        """
        ...


class Body(NamedTuple):
    """Hold what the body of a call says."""

    name: str
    arguments: Mapping[str, Any] | None
    status: CallStatus
    id: str = ""


def function_of(text: str, keys: Sequence[str] = ("arguments",)) -> Body:
    """Read a call that is one JSON object with a name, and arguments under one of the keys; no key stands twice."""
    try:
        function, unique = decode_members(text)
    except ValueError:
        return Body("", None, "invalid_json")
    if not isinstance(function, dict) or not unique:
        return Body("", None, "malformed")
    name, id_ = function.get("name"), function.get("id")
    id_ = id_ if isinstance(id_, str) else ""
    if not isinstance(name, str) or not name:
        return Body("", None, "missing_name", id_)
    arguments: Any = next((function[key] for key in keys if key in function), {})
    if not isinstance(arguments, dict):
        return Body(name, None, "malformed", id_)
    return Body(name, arguments, "ok", id_)


def arguments_of(name: str, text: str, id_: str = "") -> Body:
    """Read a call whose name stands before its arguments, a JSON object."""
    if not name:
        return Body("", None, "missing_name", id_)
    try:
        arguments = decode_json(text)
    except ValueError:
        return Body(name, None, "invalid_json", id_)
    if not isinstance(arguments, dict):
        return Body(name, None, "malformed", id_)
    return Body(name, arguments, "ok", id_)


def call_of(
    turn: TurnText, outer: tuple[int, int], inner: tuple[int, int], body: Body, tools: Tools, *, closed: bool = True
) -> ToolCall:
    """Return the call that a body says.

    Args:
        turn: The turn.
        outer: Its bytes, delimiters included.
        inner: The bytes between its delimiters.
        body: What stands there.
        tools: Calls of other names are `unknown_tool`.
        closed: The call has its end.
    """
    status = _status(body, tools, closed=closed)
    raw, tokens = turn.text(*inner).strip(), turn.tokens(*outer)
    return ToolCall(body.name, body.arguments, id=body.id, raw=raw, tokens=tokens, status=status)


def _status(body: Body, tools: Tools, *, closed: bool) -> CallStatus:
    """Return the status of a call; one without its end is `unclosed`, whatever else is wrong with it."""
    if not closed:
        return "unclosed"
    return "unknown_tool" if body.status == "ok" and not tools.knows(body.name) else body.status


def tell_end(said: Said, body: Body, tools: Tools, *, closed: bool = True) -> None:
    """Tell the end of a call that is read early."""
    said.finish(body.name, body.arguments, body.id, _status(body, tools, closed=closed))


class Reasoning(NamedTuple):
    """Hold the reasoning at the head of a turn.

    Args:
        text: None without any.
        end: The byte where the rest of the turn begins.
        closed: The turn did not end inside it.
    """

    text: str | None
    end: int
    closed: bool


def split_reasoning(turn: TurnText, marks: Sequence[Mark], pairs: Sequence[tuple[str, str]]) -> Reasoning:
    """Read the reasoning at the head of a turn.

    Where the turn does not open it and nothing is known of its prompt, a closer still ends it if it is the first
    delimiter and no quotation: some prompts open reasoning only now and then.

    Args:
        turn: The turn.
        marks: Its delimiters.
        pairs: Openers and closers of reasoning.
    """
    begin, closers = 0, {closer.encode() for _, closer in pairs}
    opened = turn.opened
    if marks and not turn.raw[: marks[0].start].strip():
        for opener, closer in pairs:
            if marks[0].text == opener.encode():
                begin, closers, opened = marks[0].end, {closer.encode()}, True
    if opened is False:
        return Reasoning(None, 0, True)
    if not opened and (not marks or marks[0].text not in closers or turn.is_quoted(marks[0])):
        return Reasoning(None, 0, True)
    for mark in marks:
        if mark.text in closers:
            return Reasoning(turn.text(begin, mark.start).strip(), mark.end, True)
    return Reasoning(turn.text(begin, turn.end).strip(), len(turn.raw), False)


def message_of(
    turn: TurnText, reasoning: Reasoning, content: Sequence[bytes], calls: Sequence[ToolCall]
) -> AssistantMessage:
    """Return the message of a turn from its parts; content is what stands outside reasoning and calls."""
    return AssistantMessage(
        content=b"".join(content).decode("utf-8", "replace").strip(),
        reasoning=reasoning.text,
        tool_calls=tuple(calls),
        reasoning_closed=reasoning.closed,
        closed=turn.closed,
    )


# A string that never ends is taken to the end of the turn, so that no byte is looked at twice.
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?+|[{}\[\]]', re.DOTALL)


def json_end(raw: bytes, start: int, end: int) -> int | None:
    """Return where the JSON object or array ends that begins at `start`; None where it does not before `end`.

    Brackets and strings are counted; whether it is valid JSON is another question.
    """
    depth = 0
    for match in _STRUCTURE.finditer(raw, start, end):
        byte = raw[match.start()]
        if byte in b"{[":
            depth += 1
        elif byte in b"}]":
            depth -= 1
            if depth == 0:
                return match.end()
    return None
