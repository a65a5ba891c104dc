"""What every compaction is: when it is due, and what it makes of a conversation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.harness.conversation import Conversation
from agentgym_tok.tokens import Context
from agentgym_tok.trace import EdgeKind
from agentgym_tok.types import Completion, Message

__all__ = ["Compaction", "Draw", "Rewrite", "Trigger"]

_SHARE = 0.75
"""Share of the longest context at which a compaction is due where nothing else is said."""


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """Hold the conversation to go on with.

    Args:
        conversation: It ends in a generation prompt.
        kind: How the trace calls the step from the old context to the new one.
        reason: Why, for people.
    """

    conversation: Conversation
    kind: EdgeKind
    reason: str


class Draw(Protocol):
    """Let the policy write something; every attempt is logged as a turn of the episode."""

    async def __call__(
        self,
        context: Context,
        messages: Sequence[Message],
        judge: Callable[[Completion], str | None],
        *,
        attempts: int,
        max_tokens: int,
    ) -> Completion | None:
        """Return the first turn that the judge accepts, which is then trained like any other; None without one.

        Args:
            context: Goes on from the last turn with `messages`.
            messages: What the policy is asked.
            judge: Says what is wrong with an answer.
            attempts: Most attempts.
            max_tokens: Longest answer, in tokens.
        """
        ...


class Compaction(Protocol):
    """Rewrite conversations. Your own needs these two methods, and no base class; what it raises fails the episode."""

    def due(self, conversation: Conversation, max_context: int) -> bool:
        """Tell whether the conversation should be rewritten before the next turn.

        Args:
            conversation: As it stands, at least one exchange after the last rewrite.
            max_context: Most ids of a context in this environment.
        """
        ...

    async def compact(self, conversation: Conversation, draw: Draw) -> Rewrite | None:
        """Return what to go on with; None leaves the conversation as it is.

        Args:
            conversation: As it stands.
            draw: Asks the policy.
        """
        ...


class Trigger(Config):
    """Say when a compaction is due."""

    at_tokens: int | None = Field(
        default=None, ge=1, description="length of the context; three quarters of the longest where neither is given"
    )
    at_turns: int | None = Field(default=None, ge=1, description="exchanges since the first prompt or the last rewrite")

    def due(self, conversation: Conversation, max_context: int) -> bool:
        """Tell whether one of both limits is reached."""
        if self.at_turns is not None and conversation.fresh >= self.at_turns:
            return True
        limit = _SHARE * max_context if self.at_tokens is None and self.at_turns is None else self.at_tokens
        return limit is not None and len(conversation.context) >= limit


def texts(messages: Sequence[Message]) -> str:
    """Return what messages say, to be said once more by another message."""
    return "\n".join(message.content for message in messages)
