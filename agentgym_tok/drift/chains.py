"""The turns of an episode as conversations: each grows id by id, until somebody rewrites its past."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from agentgym_tok.drift.align import common_prefix
from agentgym_tok.drift.change import Conversation
from agentgym_tok.drift.layout import TurnRange
from agentgym_tok.drift.pipeline import TextPipeline
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.trace import EdgeKind, Episode, Turn
from agentgym_tok.types import Message

__all__ = ["Chain", "chains_of"]

# After these a new conversation begins, of which a text pipeline makes a row of its own too.
_APART: frozenset[EdgeKind] = frozenset({"fresh_prompt", "auxiliary", "subagent_call"})


@dataclass(eq=False)
class Chain:
    """Hold turns each of whose contexts begins with all ids of the turn before it.

    Args:
        pipeline: Of the chat format.
        turns: The turns, in order.
        source: The chain whose conversation this one rewrites.
        own: Turns before this one belong to another chain that this one branches from.
    """

    pipeline: TextPipeline
    turns: list[Turn]
    source: "Chain | None" = None
    own: int = 0
    rewriter: "Chain | None" = field(default=None, init=False)
    """The last chain that goes on from this one with another past."""

    @cached_property
    def ids(self) -> Ids:
        """int32 [T], the last turn's context and completion."""
        last = self.turns[-1]
        return as_ids(np.concatenate((last.context.ids, last.completion.ids_T)))

    @cached_property
    def ranges(self) -> list[TurnRange]:
        """Where each turn stands in the ids."""
        sizes = ((turn.index, len(turn.context), len(turn.completion.ids_T)) for turn in self.turns)
        return [TurnRange(index, start, start + size) for index, start, size in sizes]

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """JSON schemas that the last context declares."""
        return self.turns[-1].context.root.tools

    @property
    def final(self) -> "Chain":
        """The chain that this conversation has become in the end."""
        chain = self
        while chain.rewriter is not None:
            chain = chain.rewriter
        return chain

    @cached_property
    def told(self) -> tuple[Conversation, tuple[int, ...]] | None:
        """The conversation as a text pipeline keeps it, and the place of each turn's message.

        None where the trace does not hold all messages.
        """
        messages: list[Message] = []
        places: list[int] = []
        for number, turn in enumerate(self.turns):
            grown = len(turn.context) - (self.ranges[number - 1].stop if number else 0)
            if grown and not turn.messages:
                return None
            following = self.turns[number + 1].messages if number + 1 < len(self.turns) else ()
            call_ids = [message.tool_call_id for message in following if message.role == "tool"]
            messages += turn.messages
            places.append(len(messages))
            messages.append(self.pipeline.message(turn.completion.ids_T, self.tools or None, call_ids))
        return Conversation(tuple(messages), self.tools), tuple(places)


def chains_of(pipeline: TextPipeline, episode: Episode) -> list[Chain]:
    """Return the conversations of an episode, without its subagents.

    Only the attempts that the episode went on with stand in them, and no turn without ids.
    """
    chains: list[Chain] = []
    held: dict[int, tuple[Chain, int]] = {}
    first = {turn.index: turn for turn in reversed(episode.turns)}
    for turn in episode.steps:
        if not len(turn.completion.ids_T):
            continue
        # A turn that was sampled again has the context of its first attempt.
        edge = first[turn.index].edge if turn.edge.source == turn.index else turn.edge
        source = None if edge.source is None or edge.kind in _APART else held.get(edge.source)
        chain = None if source is None else _continued(*source, turn)
        if chain is None:
            chain = Chain(pipeline, [turn], None if source is None else source[0])
            if chain.source is not None:
                chain.source.rewriter = chain
            chains.append(chain)
        elif source is not None and chain is source[0]:
            chain.turns.append(turn)
        else:
            chains.append(chain)
        held[turn.index] = chain, len(chain.turns) - 1
    return chains


def _continued(chain: Chain, number: int, turn: Turn) -> Chain | None:
    """Return the chain that a turn goes on, or a branch of it, or None where the turn has another past."""
    last = chain.turns[number]
    size = len(last.context) + len(last.completion.ids_T)
    ids_T = turn.context.ids
    seen_T, said_T = last.context.ids, last.completion.ids_T
    # The answer first: it is short, and it differs where contexts fork.
    if common_prefix(ids_T[len(seen_T) : size], said_T) < len(said_T) or common_prefix(ids_T, seen_T) < len(seen_T):
        return None
    if number == len(chain.turns) - 1:
        return chain
    return Chain(chain.pipeline, [*chain.turns[: number + 1], turn], chain.source, own=number + 1)
