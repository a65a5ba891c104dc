"""Dialects that put each call between an opener and a closer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.dialect import THINK, Body, Early, call_of, message_of, split_reasoning
from agentgym_tok.chat.dialects.early import EarlyReader, raw_of
from agentgym_tok.chat.dialects.early_calls import ArrivingBody
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import ArrivingTurn, Event, Mark, TurnText, any_of
from agentgym_tok.chat.tokenizer import Tokenizer
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
        arriving: Makes what tells it early.
        inner: Delimiters inside a block, for `read_body`.
        frame: Delimiters around and between blocks; they belong neither to a call nor to the content.
        reasoning: Openers and closers of reasoning.
        heading: A line above the reasoning that belongs to its delimiter.
    """

    name: str
    signs: tuple[tuple[str, ...], ...]
    call: tuple[str, str]
    read_body: ReadBody
    arriving: Callable[[Said, Tools], ArrivingBody]
    inner: tuple[str, ...] = ()
    frame: tuple[str, ...] = ()
    reasoning: tuple[tuple[str, str], ...] = field(default=(THINK,))
    heading: str = ""

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
                calls.append(self.read_call(turn, start, mark, inner, tools))
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
            calls.append(self.read_call(turn, start, None, inner, tools))
        else:
            content.append(turn.raw[place : turn.end])
        return message_of(turn, reasoning, content, calls)

    def early(self, tokenizer: Tokenizer, tools: Tools, said: Said, opened: bool | None) -> Early:
        """Return what reads a turn while it arrives."""
        return _EarlyBlocks(self, ArrivingTurn(tokenizer, self.delimiters, opened=opened), tools, said)

    def read_call(
        self, turn: TurnText, opener: Mark, closer: Mark | None, inner: Sequence[Mark], tools: Tools
    ) -> ToolCall:
        """Read one call, from its opener to its closer or to the end of the turn."""
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


class _EarlyBlocks(EarlyReader):
    """Read dialects that put each call between an opener and a closer."""

    def __init__(self, dialect: BlockDialect, turn: ArrivingTurn, tools: Tools, said: Said) -> None:
        super().__init__(turn, tools, said, dialect.reasoning)
        said.leave_out(dialect.heading)
        self._dialect = dialect
        self._opener, self._closer = (text.encode() for text in dialect.call)
        self._frame = {text.encode() for text in dialect.frame}
        self._start: Mark | None = None

    def _rest(self, event: Event) -> None:
        raw = raw_of(event)
        if self._start is None:
            if isinstance(event, bytes) or raw not in {self._opener, *self._frame}:
                self._said.text(raw)
            elif raw == self._opener:
                self._start = event.mark
                self._inner: list[Mark] = []
                self._body: ArrivingBody = self._dialect.arriving(self._said, self._tools)
        elif isinstance(event, bytes):
            self._body.text(raw)
        elif raw != self._closer:
            self._inner.append(event.mark)
            self._body.mark(raw)
        else:
            self._end(self._start, event.mark)

    def _end(self, opener: Mark, closer: Mark) -> None:
        turn, place = self._turn.between(opener.start, closer.end)
        opener, closer, *inner = (
            Mark(mark.start - place, mark.end - place, mark.text) for mark in (opener, closer, *self._inner)
        )
        call = self._dialect.read_call(turn, opener, closer, inner, self._tools)
        self._body.finish(call.arguments)
        self._said.finish(call.name, call.arguments, call.id, call.status)
        self._start = None
