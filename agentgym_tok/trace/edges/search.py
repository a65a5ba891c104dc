"""What is asked about one context: its edge, and the facts that rules look at."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentgym_tok.tokens import Context
from agentgym_tok.trace.edges.likeness import quotes, squash
from agentgym_tok.trace.edges.lineage import Known, Lineage, split_system
from agentgym_tok.trace.records import Edge, EdgeKind
from agentgym_tok.types import Message, ToolCall

__all__ = ["FoundEdge", "Search", "has_same_ids", "latest_used"]


@dataclass(frozen=True, slots=True)
class FoundEdge:
    """Hold an edge, and where its turn belongs.

    Args:
        edge: The edge; its `target` is the index that the turn has to have.
        attempt: The attempt that the turn has to be: above 0 where the last turn is sampled once more.
        alternatives: Every edge that explains the context equally well; empty where it is sure.
    """

    edge: Edge
    attempt: int = 0
    alternatives: tuple[Edge, ...] = ()


class Search:
    """Look for the edge of one context.

    Args:
        lineage: The session's turns so far.
        context: What an engine is about to receive, or received.
        conversation: All its messages.
    """

    def __init__(self, lineage: Lineage, context: Context, conversation: Sequence[Message]) -> None:
        self.lineage = lineage
        self.context = context
        self.system, body = split_system(conversation)
        # A last message of the assistant's is no answer yet: the next one is to begin with it.
        self.body = body[:-1] if body and body[-1].role == "assistant" else body
        self._system_words = _words(self.system)

    # ---- answers

    def edge(self, kind: EdgeKind, source: Known | None, reason: str = "") -> Edge:
        """Return an edge to the next turn, with its place."""
        place = None if source is None or kind in ("continuation", "retry") else source.place(self.context)
        return Edge(kind, None if source is None else source.index, len(self.lineage), reason, False, place)

    def from_one(self, kind: EdgeKind, sources: Sequence[Known], reason: str) -> FoundEdge:
        """Return an edge from the one source; from none where several fit, unless their ids are the same."""
        if all(has_same_ids(sources[0], other) for other in sources[1:]):
            return FoundEdge(self.edge(kind, latest_used(sources), reason))
        edges = tuple(self.edge(kind, source, reason) for source in sources)
        turns = " or ".join(str(source.index) for source in sources)
        return FoundEdge(self.edge(kind, None, f"{reason}; from turn {turns}"), 0, edges)

    def unsure(self, edges: Sequence[Edge]) -> FoundEdge:
        """Return an unknown edge that could be any of several."""
        reason = " or ".join(f"{edge.kind} ({edge.reason})" for edge in edges)
        return FoundEdge(self.edge("unknown", None, reason), 0, tuple(edges))

    # ---- facts

    def same_system(self, known: Known) -> bool:
        """The system messages that both begin with say the same."""
        return _words(known.system) == self._system_words

    def same_tools(self, known: Known) -> bool:
        """Both declare the same tools."""
        return known.turn.context.root.tools_digest == self.context.root.tools_digest

    def changed(self, known: Known) -> list[str]:
        """Say which of system messages and tools are not those of an earlier turn."""
        changed = [] if self.same_system(known) else ["the system messages are others"]
        return changed if self.same_tools(known) else [*changed, "the tools are others"]

    def name(self, place: int) -> str:
        """Name a message of the body by its place in the whole conversation."""
        return f"message {len(self.system) + place}"

    def quoted_by(self, messages: Sequence[Message]) -> list[Known]:
        """Return the turns with the longest answer that one of these messages quotes whole, oldest first.

        A tool result quotes for reasons of its own: it may be what a subagent answered. And an answer whose
        conversation went on from it was no summary.
        """
        texts = _words([message for message in messages if message.role != "tool"])
        found: list[Known] = []
        longest = 0
        for step in self.lineage.steps():
            answer = squash(step.said.content)
            if len(answer) < max(longest, 1) or step.continued:
                continue
            if any(quotes(text, answer) for text in texts):
                found = [step, *(found if len(answer) == longest else [])]
                longest = len(answer)
        return found

    def callers(self) -> list[tuple[Known, int]]:
        """Return the turns that call a tool with this conversation's prompt, oldest first, and how often each does.

        A call that still awaits its result comes before those that have one.
        """
        texts = _words([*self.system, *self.body[:1]])
        found: list[tuple[Known, int]] = []
        for step in self.lineage.steps():
            words = [[squash(word) for word in _leaves(call)] for call in step.said.tool_calls]
            calls = sum(any(quotes(text, word) for text in texts for word in call) for call in words)
            found = [(step, calls), *found] if calls else found
        return [entry for entry in found if not entry[0].followed] or found


def latest_used(sources: Sequence[Known]) -> Known:
    """Return the latest of several turns that make no difference, a used one if there is any."""
    return max(sources, key=lambda known: (known.turn.used, known.index))


def has_same_ids(one: Known, other: Known) -> bool:
    """Tell whether two attempts have the same context and answer."""
    return one.turn.context.digest == other.turn.context.digest and np.array_equal(
        one.turn.completion.ids_T, other.turn.completion.ids_T
    )


def _leaves(call: ToolCall) -> Iterator[str]:
    """Yield the texts among a call's arguments."""
    values: list[Any] = [call.raw if call.arguments is None else call.arguments]
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            values.extend(value.values())
        elif isinstance(value, (list, tuple)):
            values.extend(value)


def _words(messages: Sequence[Message]) -> list[str]:
    return [squash(message.content) for message in messages]
