"""Dialects that put each call between an opener and a closer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from agentgym_tok.chat.dialects.dialect import THINK, Body, call_of, message_of, split_reasoning
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText, any_of
from agentgym_tok.types import AssistantMessage, ToolCall

__all__ = ["BlockDialect", "ReadBody"]

ReadBody: TypeAlias = Callable[[TurnText, int, int, Sequence[Mark], Tools], Body]
"""Read the bytes between two places, with the inner delimiters that stand there."""


@dataclass(frozen=True)
class BlockDialect:
    """Read turns whose calls stand in blocks.

    Args:
        name: The dialect's name.
        signs: Texts that tell it.
        call: Opener and closer of a call.
        read_body: Reads what stands between them.
        inner: Delimiters inside a block, for `read_body`.
        frame: Delimiters around and between blocks; they belong neither to a call nor to the content.
        reasoning: Openers and closers of reasoning.
    """

    name: str
    signs: tuple[tuple[str, ...], ...]
    call: tuple[str, str]
    read_body: ReadBody
    inner: tuple[str, ...] = ()
    frame: tuple[str, ...] = ()
    reasoning: tuple[tuple[str, str], ...] = field(default=(THINK,))

    @property
    def delimiters(self) -> tuple[str, ...]:
        """Every text that structures a turn."""
        return (*(text for pair in self.reasoning for text in pair), *self.frame, *self.call, *self.inner)

    def read(self, turn: TurnText, tools: Tools) -> AssistantMessage:
        """Read a turn."""
        marks = turn.marks(self._pattern)
        if not marks and not turn.opened:
            return AssistantMessage(turn.text(0, turn.end).strip(), closed=turn.closed)
        reasoning = split_reasoning(turn, marks, self.reasoning)
        opener, closer = self._call
        calls: list[ToolCall] = []
        content: list[bytes] = []
        place = reasoning.end
        start: Mark | None = None
        inner: list[Mark] = []
        for mark in marks:
            if mark.start < reasoning.end:
                continue
            if start is not None and mark.text == closer:
                calls.append(self._read_call(turn, start, mark, inner, tools))
                place, start, inner = mark.end, None, []
            elif start is not None:
                inner.append(mark)
            elif mark.text == opener:
                content.append(turn.raw[place : mark.start])
                start = mark
            elif mark.text in self._frame:
                content.append(turn.raw[place : mark.start])
                place = mark.end
        if start is not None:
            calls.append(self._read_call(turn, start, None, inner, tools))
        else:
            content.append(turn.raw[place : turn.end])
        return message_of(turn, reasoning, content, calls)

    def _read_call(
        self, turn: TurnText, opener: Mark, closer: Mark | None, inner: Sequence[Mark], tools: Tools
    ) -> ToolCall:
        end = max(turn.end, opener.end) if closer is None else closer.start
        body = self.read_body(turn, opener.end, end, inner, tools)
        outer = opener.start, end if closer is None else closer.end
        return call_of(turn, outer, (opener.end, end), body, tools, closed=closer is not None)

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        return any_of(*self.delimiters)

    @cached_property
    def _call(self) -> tuple[bytes, bytes]:
        opener, closer = self.call
        return opener.encode(), closer.encode()

    @cached_property
    def _frame(self) -> frozenset[bytes]:
        return frozenset(text.encode() for text in self.frame)
