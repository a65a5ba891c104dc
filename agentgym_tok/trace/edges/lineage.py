"""The turns of one session so far, found again by the ids and by the messages of what follows them."""

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from agentgym_tok.errors import FingerprintMismatch, TraceError
from agentgym_tok.tokens import Context, Ids
from agentgym_tok.trace.edges.likeness import Entry, likeness
from agentgym_tok.trace.laws import first_difference
from agentgym_tok.trace.records import EdgeKind, Turn
from agentgym_tok.types import AssistantMessage, Message

__all__ = ["Known", "Lineage", "Parse", "count_answers", "split_system"]

_NEW: frozenset[EdgeKind] = frozenset({"fresh_prompt", "subagent_call", "auxiliary", "unknown"})
"""Kinds of edges whose turn does not go on with its source's conversation."""

SYSTEM_ROLES = frozenset({"system", "developer"})


def split_system(
    conversation: Sequence[Message],
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the system messages that a conversation begins with, and all others."""
    end = next((place for place, one in enumerate(conversation) if one.role not in SYSTEM_ROLES), len(conversation))
    return tuple(conversation[:end]), tuple(conversation[end:])


def count_answers(messages: Sequence[Message]) -> int:
    """Return how many messages are an assistant's."""
    return sum(message.role == "assistant" for message in messages)


class Parse(Protocol):
    """Read an answer from its ids; `ChatFormat.parse` does."""

    def __call__(self, ids_T: Ids, tools: Sequence[Mapping[str, Any]] | None = None) -> AssistantMessage:
        """Return what it says."""
        ...


@dataclass(slots=True, eq=False)
class Known:
    """Hold an earlier turn, with what was found out about it.

    Args:
        turn: The turn.
        said: Its answer, read.
        parent: The turn that it goes on from by its ids; None where its prompt was opened anew.
        news: Messages since the parent's answer, or the whole conversation.
        system: The system messages that its conversation begins with.
        length: Messages of its conversation behind those, without its answer.
        answers: How many of these are an assistant's.
        caller: First turn of the subagent's conversation that it belongs to; None outside of subagents.
        continued: A later turn goes on from its ids.
        followed: A later turn's conversation goes on from it, by its ids or rewritten.
    """

    turn: Turn
    said: AssistantMessage
    parent: "Known | None"
    news: tuple[Message, ...]
    system: tuple[Message, ...] = field(init=False)
    length: int = field(init=False)
    answers: int = field(init=False)
    caller: "Known | None" = None
    continued: bool = False
    followed: bool = False

    def __post_init__(self) -> None:
        self.answers = count_answers(self.news)
        if self.parent is None:
            self.system, body = split_system(self.news)
            self.length = len(body)
        else:
            self.system = self.parent.system
            self.length = self.parent.length + 1 + len(self.news)
            self.answers += self.parent.answers + 1

    @property
    def index(self) -> int:
        """Index of the turn."""
        return self.turn.index

    @property
    def end(self) -> int:
        """Number of ids of its context and answer."""
        return len(self.turn.context) + len(self.turn.completion.ids_T)

    @property
    def answer(self) -> Entry:
        """Its answer as a message."""
        said = self.said
        message = Message("assistant", said.content, tool_calls=said.tool_calls, reasoning=said.reasoning)
        return Entry(message, self.turn.text)

    def chain(self) -> list["Known"]:
        """Return the turns whose ids its own go on from, oldest first, itself last."""
        chain: list[Known] = []
        known: Known | None = self
        while known is not None:
            chain.append(known)
            known = known.parent
        return chain[::-1]

    def body(self) -> list[Entry]:
        """Return its conversation behind the system messages, without its answer."""
        entries: list[Entry] = []
        for known in self.chain():
            if known.parent is not None:
                entries.append(known.parent.answer)
            entries += [Entry(message) for message in known.news]
        return entries[len(self.system) :]

    def place(self, context: Context) -> int | None:
        """Return the first token at which a context leaves this turn's ids; None where one begins with the other."""
        seen = len(self.turn.context)
        place = first_difference(context.ids, self.turn.context.ids)
        if place is None:
            inside = first_difference(context.ids[seen:], self.turn.completion.ids_T)
            place = None if inside is None else seen + inside
        return None if place is None or place >= len(context) else place


class Lineage:
    """Keep the turns of one session, in the order in which they are written.

    Args:
        parse: Reads answers: `ChatFormat.parse` of the session's format.
    """

    def __init__(self, parse: Parse) -> None:
        self.parse = parse
        self._all: list[Known] = []
        self._steps: dict[int, Known] = {}
        self._first: dict[int, Known] = {}
        self._by_digest: dict[str, list[Known]] = {}
        self._by_end: list[Known] = []

    def __len__(self) -> int:
        """Return the number of turns; attempts at one of them count once."""
        return len(self._steps)

    @property
    def last(self) -> Known | None:
        """The attempt that was written last."""
        return self._all[-1] if self._all else None

    def steps(self) -> Iterator[Known]:
        """Yield the used attempt of each turn, else its last one; newest turn first."""
        return reversed(self._steps.values())

    def step(self, index: int) -> Known | None:
        """Return the attempt of a turn that an edge from it means; None where there is no such turn."""
        return self._steps.get(index)

    def step_of(self, known: Known) -> Known:
        """Return the attempt that an edge from a turn means."""
        return self._steps[known.index]

    def ends_of_subagents(self) -> list[Known]:
        """Return the last turn of each subagent's conversation, oldest first."""
        ends: dict[Known, Known] = {}
        for known in self.steps():
            if known.caller is not None:
                ends.setdefault(known.caller, known)
        return list(ends.values())[::-1]

    def conversation(self, index: int) -> tuple[Message, ...]:
        """Return the whole conversation that a turn was asked with, answers as they were read.

        Args:
            index: Of the turn.

        Raises:
            TraceError: There is no such turn.
        """
        known = self.step(index)
        if known is None:
            raise TraceError("there is no such turn", where="Lineage", got=index, expected=f"below {len(self)}")
        return (*known.system, *(entry.message for entry in known.body()))

    def add(self, turn: Turn, said: AssistantMessage | None = None) -> None:
        """Take in the next turn, or the next attempt at the last one.

        Args:
            turn: With its edge; `messages` as a trace holds them.
            said: Its answer, where somebody has read it.

        Raises:
            TraceError: It is out of order, or its edge comes from no turn that is known.
            FingerprintMismatch: Its ids belong to another chat format.
        """
        if turn.index not in (len(self._steps), len(self._steps) - 1):
            got, expected = f"turn {turn.index}", f"turn {len(self._steps)}, or another attempt at the one before"
            raise TraceError("a turn is out of order", where="Lineage", got=got, expected=expected)
        self.check(turn.context)
        said = said or self.parse(turn.completion.ids_T, turn.context.root.tools or None)
        source = None if turn.edge.source is None else self._steps.get(turn.edge.source)
        if turn.edge.source == turn.index:
            first = self._first[turn.index]
            known = Known(turn, said, first.parent, first.news)
        elif turn.edge.kind == "continuation":
            if source is None:
                raise TraceError("it goes on from no turn", where=f"turn {turn.index}", got=turn.edge.source)
            known = Known(turn, said, source, turn.messages)
            source.continued = True
        else:
            known = Known(turn, said, None, turn.messages)
        if turn.edge.kind == "subagent_call":
            known.caller = known
        elif source is not None and turn.edge.kind not in _NEW:
            known.caller = source.caller
            source.followed |= turn.edge.kind != "retry"
        self._put(known)

    def settle(self, turn: Turn) -> None:
        """Take in which attempt at a turn was used, where that was not known when it was added.

        Args:
            turn: One that was added, as it is now.

        Raises:
            TraceError: It was never added.
        """
        # Newest first: what was not known yet concerns one of the last turns.
        attempts = list(takewhile(lambda one: one.index >= turn.index, reversed(self._all)))
        known = next((one for one in attempts if (one.index, one.turn.attempt) == (turn.index, turn.attempt)), None)
        if known is None:
            got = f"turn {turn.index}, attempt {turn.attempt}"
            raise TraceError("there is no such turn", where="Lineage.settle", got=got)
        known.turn = turn
        own = [one for one in attempts if one.index == turn.index]
        self._steps[turn.index] = next((one for one in own if one.turn.used), own[0])

    def check(self, context: Context) -> None:
        """Refuse a context of another tokenizer, template or setting.

        Raises:
            FingerprintMismatch: It belongs to another format than the session's turns.
        """
        if self._all and context.root.fingerprint != self._all[0].turn.context.root.fingerprint:
            raise FingerprintMismatch(
                "one session has one chat format",
                where=f"context of {len(context)} ids",
                got=context.root.fingerprint[:16],
                expected=self._all[0].turn.context.root.fingerprint[:16],
                fix="classify it in a session of its own",
            )

    def _put(self, known: Known) -> None:
        index = known.index
        self._all.append(known)
        self._first.setdefault(index, known)
        if index not in self._steps or known.turn.used or not self._steps[index].turn.used:
            self._steps[index] = known
        self._by_digest.setdefault(known.turn.context.digest, []).append(known)
        insort(self._by_end, known, key=_end)

    def repeated(self, context: Context) -> list[Known]:
        """Return the attempts that were asked with the same tools and ids, oldest first."""
        return self._by_digest.get(context.digest, [])

    def continued(self, context: Context, conversation: Sequence[Message]) -> list[Known]:
        """Return the attempts whose context and answer a context begins with: the longest ones, oldest first.

        Args:
            context: What an engine is about to receive.
            conversation: Its messages. No id shows that an empty answer was given: its message has to.
        """
        ancestors = set(context.lineage())
        longest: list[Known] = []
        for place in reversed(range(bisect_right(self._by_end, len(context), key=_end))):
            known = self._by_end[place]
            if longest and known.end < longest[0].end:
                break
            if _spoke(known, conversation) and _begins(context, known, ancestors):
                longest.append(known)
        return longest[::-1]


def _end(known: Known) -> int:
    return known.end


def _spoke(known: Known, conversation: Sequence[Message]) -> bool:
    if len(known.turn.completion.ids_T):
        return True
    place = len(known.system) + known.length
    return place < len(conversation) and likeness(known.answer, conversation[place]) is not None


def _begins(context: Context, known: Known, ancestors: set[Context]) -> bool:
    """Tell whether a context begins with a turn's ids: the answer first, since it differs where conversations fork."""
    earlier = known.turn.context
    seen = len(earlier)
    if not _equal(context.ids[seen : known.end], known.turn.completion.ids_T):
        return False
    return earlier in ancestors or _equal(context.ids[:seen], earlier.ids)


def _equal(one_T: Ids, other_T: Ids) -> bool:
    return np.array_equal(one_T, other_T)
