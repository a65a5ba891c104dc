"""What a client is told of drift, by the names of `drift.DRIFT_CLASSES`."""

from collections.abc import Mapping
from typing import Final

from agentgym_tok.proxy.drafts import Draft
from agentgym_tok.trace import EdgeKind
from agentgym_tok.types import Completion

__all__ = ["completion_drift", "prompt_drift", "words_drift"]

_EDGES: Final[Mapping[EdgeKind, str]] = {
    "rerender": "retokenised",
    "compaction": "history_edit",
    "strip_reasoning": "reasoning_strip",
    "system_swap": "system_swap",
    "tools_change": "tools_swap",
    "unknown": "history_edit",
}
"""Edges by which a conversation leaves earlier ids. All others go on, begin a new one, or ask once more."""

_EDITS: Final = frozenset({"", "assistant_message"})
"""Reasons why a conversation was rendered that lie in the conversation itself, and the edge knows."""

_REFUSALS: Final[Mapping[str, str]] = {"ambiguous": "other", "other_opener": "stop_token"}
"""Why a conversation was rendered although it goes on; every other refusal of the bridge is the template's."""

_PHRASES: Final[Mapping[str, str]] = {
    "no ids": "stream_loss",
    "that were drawn": "stream_loss",
    "than its pieces": "stream_loss",
    "log-probabilities": "logprob_misalignment",
    "stop token": "stop_token",
    "stop string": "stop_token",
    "read other ids": "retokenised",
    "encoded from text": "retokenised",
}
"""What policies write where ids are not exact."""


def prompt_drift(draft: Draft) -> tuple[str, ...]:
    """Name why a prompt does not begin with the ids of the turn that it goes on from; empty where it does.

    Args:
        draft: The turn, before it is drawn.
    """
    prepared, edge = draft.prepared, draft.edge
    if prepared is None or edge.kind not in _EDGES:
        return ()
    goes_on = edge.source is not None and edge.place is None
    if goes_on or not any(message.role == "assistant" for message in prepared.conversation):
        return ()
    if prepared.reason in _EDITS:
        return (_EDGES[edge.kind],)
    return (_REFUSALS.get(prepared.reason, "template"),)


def completion_drift(completion: Completion) -> tuple[str, ...]:
    """Name why a turn cannot be trained; empty where it can.

    Args:
        completion: The turn.
    """
    if not completion.ids_exact:
        return words_drift(completion.note) or ("other",)
    return () if completion.logprobs in {"raw", "processed"} else ("logprob_misalignment",)


def words_drift(words: str) -> tuple[str, ...]:
    """Name what is wrong with ids, from what a policy says of it; empty where it says nothing of ids.

    Args:
        words: The note of a completion, or what an error says went wrong.
    """
    return tuple(dict.fromkeys(name for phrase, name in _PHRASES.items() if phrase in words))
