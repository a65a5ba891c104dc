"""Keeping the beginning and the end of a conversation."""

from dataclasses import replace

from pydantic import Field

from agentgym_tok.chat import Refusal
from agentgym_tok.harness.compaction.compaction import Draw, Rewrite, Trigger, texts
from agentgym_tok.harness.conversation import Conversation, Exchange
from agentgym_tok.types import Message

__all__ = ["WindowCompaction", "windowed"]


class WindowCompaction(Trigger):
    """Keep the first prompt, the first turn and the last exchanges, all by their ids; the policy is not asked.

    What stood between is gone; a sentence says so in front of what the world said before the first kept exchange.
    """

    keep: int = Field(default=4, ge=0, description="last exchanges that stay; raise it where the policy loses its way")
    gap: str = Field(default="[Earlier steps are left out here.]\n", description="stands where something was left out")

    async def compact(self, conversation: Conversation, draw: Draw) -> Rewrite | None:
        """Return the window; None where nothing would go, or the template refuses it."""
        del draw
        return windowed(conversation, self.keep, self.gap, "window")


def windowed(conversation: Conversation, keep: int, gap: str, reason: str) -> Rewrite | None:
    """Return a conversation without what stands between its first turn and its last exchanges.

    Args:
        conversation: As it stands.
        keep: How many last exchanges stay.
        gap: Stands where something was left out.
        reason: For the edge.
    """
    exchanges = conversation.exchanges
    first = len(exchanges) - keep
    if first < 2:  # the first exchange and one to leave out
        return None
    anchor, before = exchanges[0], texts(exchanges[first - 1].messages)
    opened = replace(anchor, messages=_saying(anchor, gap + before))
    made = conversation.rebuilt([opened, *exchanges[first:]])
    return None if isinstance(made, Refusal) else Rewrite(made, "compaction", reason)


def _saying(exchange: Exchange, text: str) -> tuple[Message, ...]:
    """Return the messages after a turn with another text, in the roles in which templates expect them."""
    last = exchange.messages[-1]
    return (*exchange.messages[:-1], Message(last.role, text, tool_call_id=last.tool_call_id, name=last.name))
