"""The tools of a conversation: their schemas, and an answer to every call, well-formed or not."""

import asyncio
import copy
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from agentgym_tok.chat.dialects.tools import decode_json
from agentgym_tok.errors import ConfigError
from agentgym_tok.harness.tools.time_limit import GivenUp, Outcome, await_within, run_within
from agentgym_tok.harness.tools.tool import Tool
from agentgym_tok.harness.tools.words import error_words, result_words, shorten
from agentgym_tok.trace import Failure
from agentgym_tok.types import Message, ToolCall

__all__ = ["ToolResult", "Toolbox"]

_PARALLEL = 16
_SMALLEST = 100
# What can be wrong with a call itself; the values are what the policy is told.
_BROKEN: Mapping[str, str] = {
    "invalid_json": "the call is no valid JSON{detail}. Write it again.",
    "unclosed": "the call was cut off before its end. Write it again, whole.",
    "missing_name": "the call names no tool. {tools}",
    "malformed": "the call does not have the form of a call: a tool's name, and its arguments as one JSON object.",
}
_MISTAKES = frozenset({*_BROKEN, "unknown_tool", "invalid_arguments", "ValueError"})


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Hold what became of one call.

    Args:
        call: The call.
        message: What answers it; text of the world, so never trusted.
        failure: What went wrong; None where the tool answered. `kind` is the call's status where the call was broken,
            `unknown_tool`, `invalid_arguments`, `timeout`, `busy`, or the name of the error that the tool raised.
        left_out: Characters that were cut from a long answer.
    """

    call: ToolCall
    message: Message
    failure: Failure | None = None
    left_out: int = 0

    @property
    def mistaken(self) -> bool:
        """The call is at fault, so that it can only fail again: it reached no tool, or one that raised a ValueError."""
        return self.failure is not None and self.failure.kind in _MISTAKES


class Toolbox:
    """Answer the calls of one conversation.

    Whatever a call says and a tool does, there is one answer: an error is a text by which the policy can mend its call,
    and a `Failure` for the record. A box whose tools keep state serves one episode: take `fresh()` for each.

    Args:
        tools: Tools, or what `Tool` takes: functions, callable objects, or their classes.
        timeout_s: Longest time for one call, in seconds.
        max_characters: Longest answer; a longer one is cut in its middle.

    Attributes:
        tools: The tools.
        schemas: Their schemas, for `ChatFormat.open` and `ChatFormat.parse`.

    Raises:
        ConfigError: Something is no tool, two have one name, or a limit is too small.
    """

    def __init__(
        self, *tools: Tool | Callable[..., Any], timeout_s: float = 30.0, max_characters: int = 10_000
    ) -> None:
        if not timeout_s > 0 or max_characters < _SMALLEST:
            got, expected = f"{timeout_s=}, {max_characters=}", f"seconds above 0, and at least {_SMALLEST} characters"
            raise ConfigError("the limits are too small", where="Toolbox", got=got, expected=expected)
        self._timeout_s, self._max_characters = timeout_s, max_characters
        self._hold(tool if isinstance(tool, Tool) else Tool(tool) for tool in tools)

    def _hold(self, tools: Iterable[Tool]) -> None:
        self.tools = tuple(tools)
        self.schemas = tuple(tool.schema for tool in self.tools)
        self._named = {tool.name: tool for tool in self.tools}
        # By the id of an object that keeps state: whether the call of it that was given up still goes on.
        self._unfinished: dict[int, Callable[[], bool]] = {}
        if len(self._named) < len(self.tools):
            got = ", ".join(tool.name for tool in self.tools)
            fix = "pass Tool(function, name=...)"
            raise ConfigError("two tools have one name", where="Toolbox", got=got, expected="a name for each", fix=fix)

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._named)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_unfinished": {}}

    def fresh(self) -> Self:
        """Return a box for another episode: plain functions are shared, objects with state begin anew."""
        twins: dict[int, Any] = {}
        return self._of(tool.fresh(twins) for tool in self.tools)

    def clone(self) -> Self:
        """Return a box for a branch of this episode: state is copied as it is now, and goes its own way."""
        memo: dict[int, Any] = {}
        return self._of(tool.clone(memo) for tool in self.tools)

    def _of(self, tools: Iterable[Tool]) -> Self:
        twin = copy.copy(self)
        twin._hold(tools)
        return twin

    async def run(self, call: ToolCall, *, timeout_s: float | None = None) -> ToolResult:
        """Answer one call; nothing but a cancellation is raised.

        Args:
            call: As `ChatFormat.parse` read it, whatever its status.
            timeout_s: Longest time in seconds, where it is less than the box's own.
        """
        tool = self._named.get(call.name)
        if call.status in _BROKEN or (tool is not None and call.arguments is None):
            return self._broken(call)
        if tool is None:
            return self._failed(call, "unknown_tool", f"there is no tool {call.name[:80]!r}. {self._known(call.name)}")
        try:
            given = tool.read(call.arguments or {})
        except Exception as error:  # noqa: BLE001  # a parameter's type may check values by code of its own
            words = f"the arguments do not fit {tool.name}.\n{error_words(error)}"
            return self._failed(call, "invalid_arguments", words)
        limit = self._timeout_s if timeout_s is None else min(self._timeout_s, timeout_s)
        return await self._call(call, tool, given, limit)

    async def run_all(self, calls: Sequence[ToolCall], *, timeout_s: float | None = None) -> list[ToolResult]:
        """Answer the calls of a turn, at most 16 at a time; those of one object with state one after the other.

        Args:
            calls: In the order of the turn.
            timeout_s: Longest time for each call in seconds, where it is less than the box's own.

        Returns:
            An answer for each call, in their order.
        """
        results: dict[int, ToolResult] = {}
        free = asyncio.Semaphore(_PARALLEL)

        async def work(places: Sequence[int]) -> None:
            async with free:
                for place in places:
                    results[place] = await self.run(calls[place], timeout_s=timeout_s)

        async with asyncio.TaskGroup() as group:
            for places in self._lines(calls):
                group.create_task(work(places))
        return [results[place] for place in range(len(calls))]

    def _lines(self, calls: Sequence[ToolCall]) -> Iterable[Sequence[int]]:
        """Return the places of calls that must wait for each other, line by line."""
        lines: dict[tuple[str, int], list[int]] = {}
        for place, call in enumerate(calls):
            owner = self._named[call.name].owner if call.name in self._named else None
            lines.setdefault(("call", place) if owner is None else ("owner", id(owner)), []).append(place)
        return lines.values()

    async def _call(self, call: ToolCall, tool: Tool, given: Mapping[str, Any], limit: float) -> ToolResult:
        if limit <= 0:
            return self._failed(call, "timeout", "no time is left for tools.")
        owner = id(tool.owner)
        goes_on = self._unfinished.get(owner)
        if goes_on is not None and goes_on():
            return self._failed(call, "busy", f"{tool.name} is still busy with an earlier call. Go on without it.")
        try:
            text, error = await _timed(tool, given, limit)
        except GivenUp as late:
            if tool.owner is not None:
                self._unfinished[owner] = late.running
            return self._failed(call, "timeout", f"{tool.name} gave no answer within {limit:g} seconds.")
        if text is None:
            assert error is not None  # one of both is there
            return self._failed(call, type(error).__name__, error_words(error))
        text, left_out = shorten(text, self._max_characters)
        return ToolResult(call, _message(call, text), left_out=left_out)

    def _broken(self, call: ToolCall) -> ToolResult:
        kind = call.status if call.status in _BROKEN else "malformed"
        detail = _json_fault(call.raw) if kind == "invalid_json" else ""
        return self._failed(call, kind, _BROKEN[kind].format(detail=detail, tools=self._known("")))

    def _known(self, name: str) -> str:
        near = difflib.get_close_matches(name[:80], self._named, n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        return f"{meant}The tools are: {', '.join(self._named) or 'none'}."

    def _failed(self, call: ToolCall, kind: str, words: str) -> ToolResult:
        text = shorten(f"Error: {words}", self._max_characters)[0]
        return ToolResult(call, _message(call, text), Failure("tool", kind, shorten(words, 1000)[0]))


async def _timed(tool: Tool, given: Mapping[str, Any], limit: float) -> Outcome[str]:
    if tool.is_async:

        async def awaited() -> str:
            return result_words(await tool.function(**given))

        return await await_within(limit, awaited())
    return await run_within(limit, lambda: result_words(tool.function(**given)))


def _message(call: ToolCall, text: str) -> Message:
    return Message("tool", text, tool_call_id=call.id or None, name=call.name or None)


def _json_fault(raw: str) -> str:
    if not raw.startswith("{"):
        return ""
    try:
        decode_json(raw)
    except ValueError as error:
        return f": {error}"
    return ""
