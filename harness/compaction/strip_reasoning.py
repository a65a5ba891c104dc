"""Leaving out what was only thought, as chat templates of reasoning models do."""

from pydantic import Field

from agentgym_tok.chat import ChatFormat, Refusal
from agentgym_tok.harness.compaction.compaction import Draw, Rewrite, Trigger
from agentgym_tok.harness.conversation import Conversation, Exchange
from agentgym_tok.tokens import Span
from agentgym_tok.types import AssistantMessage

__all__ = ["StripReasoning"]


class StripReasoning(Trigger):
    """Take the reasoning out of earlier turns; what they said behind it keeps its ids.

    A turn stays whole where the proof fails that it says the same without: the reasoning was never closed, or the
    prompt itself opens it.
    """

    keep: int = Field(default=0, ge=0, description="last turns that keep their reasoning")

    async def compact(self, conversation: Conversation, draw: Draw) -> Rewrite | None:
        """Return the conversation without the reasoning; None where there is none."""
        del draw
        exchanges = conversation.exchanges
        first_kept = max(0, len(exchanges) - self.keep)
        stripped = [_stripped(conversation.chat, exchange) for exchange in exchanges[:first_kept]]
        if all(new is old for new, old in zip(stripped, exchanges, strict=False)):
            return None
        made = conversation.rebuilt([*stripped, *exchanges[first_kept:]])
        return None if isinstance(made, Refusal) else Rewrite(made, "strip_reasoning", "reasoning")


def _stripped(chat: ChatFormat, exchange: Exchange) -> Exchange:
    """Return the exchange without its turn's reasoning, or as it is."""
    turn, tools = exchange.answered.span, exchange.answered.root.tools
    said = chat.parse(turn.ids_T, tools)
    if not said.reasoning:
        return exchange
    start = _end_of_reasoning(chat, turn)
    if start is None:
        return exchange
    rest = chat.parse(turn.ids_T[start:], tools)
    if rest.reasoning or _words(rest) != _words(said):
        return exchange
    logprobs_T = None if turn.logprobs_T is None else turn.logprobs_T[start:]
    parent = exchange.answered.parent
    assert parent is not None  # a turn answers something
    answered = parent.extend(Span(turn.ids_T[start:], turn.origin, logprobs_T))
    return Exchange(answered, rest.message(), exchange.messages, exchange.context)


def _words(said: AssistantMessage) -> tuple[object, ...]:
    return said.content.strip(), [(call.name, call.arguments, call.status) for call in said.tool_calls]


def _end_of_reasoning(chat: ChatFormat, turn: Span) -> int | None:
    """Return the place of the first token that begins behind the reasoning and is no blank; None without one."""
    pieces = chat.token_bytes(turn.ids_T)
    text = b"".join(pieces)
    closers = [closer.encode() for _, closer in chat.reasoning_pairs]
    end = min((text.find(closer) + len(closer) for closer in closers if closer in text), default=len(text))
    length = 0
    for place, piece in enumerate(pieces):
        if length >= end and piece.strip():
            return place
        length += len(piece)
    return None
