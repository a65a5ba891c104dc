"""What a trace would hold of a case: its turns as an engine told them, for the library's audit."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentgym_tok import Context, Message
from agentgym_tok.tokens import Root, Span, as_ids
from agentgym_tok.trace import Edge, EdgeKind, Episode, EpisodeHead, Turn, sent_digest
from agentgym_tok.types import Completion
from tito_conformance.judge import Taken
from tito_conformance.models import Model
from tito_conformance.replies import Sampled

__all__ = ["Record", "record_of"]

_EDGES: dict[str, EdgeKind] = {"system_swap": "system_swap", "tools_swap": "tools_change"}


@dataclass(frozen=True, slots=True)
class Record:
    """Hold what an audit is given.

    Args:
        turns: The turns.
        streamed: By turn, the ids that a stream delivered.
        logprobs: By turn, how many log-probabilities came.
    """

    turns: Sequence[Turn]
    streamed: dict[int, list[int]] = field(default_factory=dict)
    logprobs: dict[int, int] = field(default_factory=dict)

    @property
    def episode(self) -> Episode:
        """The turns as an episode."""
        return Episode(EpisodeHead("case", "case"), tuple(self.turns), "done")


def record_of(model: Model, taken: Sequence[Taken]) -> Record:
    """Return the record of a case that was played to its end.

    Args:
        model: The model that it ran on.
        taken: Its steps.
    """
    turns: list[Turn] = []
    record = Record(turns)
    after: Context | None = None
    seen = 0
    for index, step in enumerate(taken):
        context, edge = _context(model, step, after, index)
        new = step.messages[seen:] if edge.kind == "continuation" else step.messages
        sampled = Sampled(model, step.step.reply, step.calls[-1].prompt, tuple(model.sample(step.step.reply.pieces)))
        ids_T = as_ids(sampled.ids if sampled.told_ids is None else sampled.told_ids)
        digest, messages = sent_digest(context.root, context.ids), tuple(Message.of(message) for message in new)
        turns.append(Turn("case", index, context, digest, Completion(ids_T), edge, messages))
        record.logprobs[index] = len(sampled.logprobs)
        delivered = sampled.streamed_ids(step.tools)
        if delivered != list(sampled.ids):
            record.streamed[index] = delivered
        after, seen = context.sampled(ids_T), len(step.messages) + 1
    return record


def _context(model: Model, step: Taken, after: Context | None, index: int) -> tuple[Context, Edge]:
    prompt_T = as_ids(step.calls[-1].prompt)
    if after is not None and np.array_equal(prompt_T[: len(after)], after.ids):
        return after.extend(Span(prompt_T[len(after) :], "observation")), Edge("continuation", index - 1, index)
    context = Context(Root(model.chat.fingerprint, model.chat.vocab_size, tuple(step.tools)), Span(prompt_T, "prompt"))
    if after is None:
        return context, Edge("fresh_prompt", None, index)
    kind: EdgeKind = "rerender"
    for name in step.received.drift:
        kind = _EDGES.get(name, kind)
    return context, Edge(kind, index - 1, index)
