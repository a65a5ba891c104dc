"""What a context is made of: the first prompt, and behind it turns and what was said to each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from agentgym_tok.chat import ChatFormat, Refusal
from agentgym_tok.tokens import Context
from agentgym_tok.types import Message

__all__ = ["Conversation", "Exchange"]


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Hold one turn and what was said to it.

    Args:
        answered: The context that ends in the turn, id for id as it was sampled.
        said: The turn as a message.
        messages: What came next.
        context: The context that goes on with that, and ends in the next generation prompt.
    """

    answered: Context
    said: Message
    messages: tuple[Message, ...]
    context: Context


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """Hold a conversation as what it was made of.

    Args:
        chat: Tokenizer and template.
        first: The first prompt.
        opening: Its messages.
        exchanges: What followed.
        rewritten: How many of these stand here by a rewrite, in other contexts than they were sampled in.
    """

    chat: ChatFormat
    first: Context
    opening: tuple[Message, ...]
    exchanges: tuple[Exchange, ...] = ()
    rewritten: int = 0

    @property
    def fresh(self) -> int:
        """Exchanges since the first prompt or the last rewrite."""
        return len(self.exchanges) - self.rewritten

    @property
    def context(self) -> Context:
        """What the next turn answers."""
        return self.exchanges[-1].context if self.exchanges else self.first

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, for people and for rendering anew."""
        later = [message for exchange in self.exchanges for message in (exchange.said, *exchange.messages)]
        return (*self.opening, *later)

    def followed(self, answered: Context, said: Message, messages: Sequence[Message], context: Context) -> Self:
        """Return the conversation after another turn."""
        exchange = Exchange(answered, said, tuple(messages), context)
        return replace(self, exchanges=(*self.exchanges, exchange))

    def rebuilt(self, exchanges: Sequence[Exchange]) -> "Conversation | Refusal":
        """Return the first prompt with other exchanges behind it: turns keep their ids, and the rest is bridged anew.

        As far as they are this conversation's own from its beginning, the contexts are shared.

        Args:
            exchanges: Of one that is not at its place, `answered.span`, `said` and `messages` are read.
        """
        context = self.first
        rebuilt: list[Exchange] = []
        own = True
        for place, exchange in enumerate(exchanges):
            own = own and place < len(self.exchanges) and exchange is self.exchanges[place]
            if not own:
                here = exchange.answered.parent is context
                answered = exchange.answered if here else context.extend(exchange.answered.span)
                bridged = self.chat.bridge(answered, exchange.messages)
                if isinstance(bridged, Refusal):
                    return bridged
                exchange = Exchange(answered, exchange.said, exchange.messages, bridged)  # noqa: PLW2901
            rebuilt.append(exchange)
            context = exchange.context
        return replace(self, exchanges=tuple(rebuilt), rewritten=len(rebuilt))
