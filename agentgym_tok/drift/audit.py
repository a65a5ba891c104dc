"""Measure what a text pipeline would have trained on instead of the ids that were sampled."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from agentgym_tok.chat import ChatFormat
from agentgym_tok.drift.change import Conversation
from agentgym_tok.drift.episodes import audit_episode
from agentgym_tok.drift.evidence import Evidence
from agentgym_tok.drift.layout import Layout, TurnRange
from agentgym_tok.drift.messages import audit_messages
from agentgym_tok.drift.naming import name_hunk
from agentgym_tok.drift.pipeline import TextPipeline, text_pipeline
from agentgym_tok.drift.report import DriftClass, DriftReport
from agentgym_tok.drift.sides import Sides
from agentgym_tok.errors import ConfigError
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.trace import Episode
from agentgym_tok.trace.rows import family
from agentgym_tok.types import Message

__all__ = ["audit", "classify"]

Messages = Sequence[Message | Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]


def audit(
    chat: ChatFormat,
    episode_or_messages: Episode | Messages,
    *,
    tools: Tools | None = None,
    history: Messages | None = None,
    streamed: Mapping[int, ArrayLike] | None = None,
    logprobs: Mapping[int, int] | None = None,
    special_tokens: bool = False,
) -> DriftReport:
    """Report every place where text would have led to other ids than were sent and sampled.

    Args:
        chat: The chat format of the ids, or the one to render the messages with.
        episode_or_messages: An episode, whose ids are compared with what its text is encoded to, turn by turn and as a
            whole conversation (`docs/design/drift.md`). Or messages, whose renderings are compared with each other.
        tools: JSON schemas that the text pipeline declares; an episode has its own.
        history: The conversation as a harness kept it, where that is known; else it is rebuilt from the turns.
        streamed: By turn: int [T], the ids that a stream delivered.
        logprobs: By turn: how many log-probabilities came with it.
        special_tokens: The pipeline encodes renderings with the tokenizer's special tokens, as its plain call does.

    Raises:
        FingerprintMismatch: The episode's ids belong to another chat format.
        ChatError: A message has no role or no text.
        ConfigError: Evidence was given for messages.
        InvalidIds: Ids are outside the vocabulary.
    """
    pipeline = text_pipeline(chat)
    if not isinstance(episode_or_messages, Episode):
        if special_tokens or any(given is not None for given in (history, streamed, logprobs)):
            expected = "an episode; messages alone have tools at most"
            raise ConfigError("evidence belongs to ids", where="audit", got="messages", expected=expected)
        return audit_messages(pipeline, Conversation.of(episode_or_messages, tools))
    evidence = Evidence(
        history=None if history is None else Conversation.of(history).messages,
        tools=None if tools is None else tuple(tools),
        streamed={turn: as_ids(ids, vocab_size=chat.vocab_size) for turn, ids in (streamed or {}).items()},
        logprobs=dict(logprobs or {}),
        special_tokens=special_tokens,
    )
    root, *children = family(episode_or_messages)
    reports = [audit_episode(pipeline, root, evidence)]
    reports += [audit_episode(pipeline, child, Evidence(special_tokens=special_tokens)) for child in children]
    return DriftReport.of(chat.reference, reports)


def classify(
    chat: ChatFormat,
    exact_T: ArrayLike,
    text_T: ArrayLike,
    *,
    messages: Messages | None = None,
    tools: Tools | None = None,
    history: Messages | None = None,
    history_tools: Tools | None = None,
    logprobs: int | None = None,
    streamed: bool = False,
) -> DriftClass | None:
    """Name the first difference of two sequences; a pure function of what is given.

    Args:
        chat: The chat format.
        exact_T: int [T], what was sent and sampled: a conversation, or one turn alone.
        text_T: int [T], what a text pipeline has instead; it may go on behind the end.
        messages: What the exact ids stand for.
        tools: JSON schemas that they declare.
        history: What the text was rendered from; the same messages where only those are given.
        history_tools: Its JSON schemas; the same where they are not given.
        logprobs: How many log-probabilities came with `exact_T`.
        streamed: `text_T` came through a stream, so that what it lacks was lost there.

    Returns:
        The class; `other` where the ids alone do not tell; None where `text_T` begins with `exact_T`.

    Raises:
        InvalidIds: The ids are no ids of this format.
        ChatError: A message has no role or no text.
    """
    pipeline = text_pipeline(chat)
    exact_T, text_T = (as_ids(ids, vocab_size=chat.vocab_size) for ids in (exact_T, text_T))
    if logprobs is not None and logprobs != len(exact_T):
        return "logprob_misalignment"
    said = None if messages is None else Conversation.of(messages, tools)
    kept = said
    if history is not None or history_tools is not None:
        told = (said.messages if said else ()) if history is None else history
        kept = Conversation.of(told, tools if history_tools is None else history_tools).opened()
        said = None if said is None else said.opened()
    sides = _sides(pipeline, exact_T, text_T, said, kept)
    hunk = next(iter(sides.hunks()), None)
    if hunk is None:
        return None
    if streamed and hunk.text_start == hunk.text_stop:
        return "stream_loss"
    return name_hunk(sides, hunk)[0]


def _sides(
    pipeline: TextPipeline, exact_T: Ids, text_T: Ids, said: Conversation | None, kept: Conversation | None
) -> Sides:
    ranges = [TurnRange(number, start, stop) for number, (start, stop) in enumerate(pipeline.find_turns(exact_T))]
    if not ranges and said is None:
        ranges = [TurnRange(0, 0, len(exact_T))]
    places = () if said is None else said.assistants
    layout = Layout(pipeline, exact_T, ranges, None if said is None else said.tools or None)
    return Sides(pipeline, exact_T, text_T, layout, said, kept, places)
