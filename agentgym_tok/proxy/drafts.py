"""A request on its way to become a turn, and what became of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentgym_tok.proxy.attempts import Attempts
from agentgym_tok.proxy.contexts import Prepared
from agentgym_tok.proxy.wire import Ask
from agentgym_tok.tokens import Context
from agentgym_tok.trace import Edge, Failure
from agentgym_tok.types import AssistantMessage, Completion, Message

__all__ = ["Answer", "Draft", "Evidence", "facts_of"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold what a request says of itself, beside its body.

    Args:
        body: Digest of its path and body.
        key: Its idempotency key.
        retries: How often its client sent it before, as the SDKs say.
        request_id: The client's name of it.
        agent: The client's name of the agent that asks.
    """

    body: bytes
    key: str = ""
    retries: int = 0
    request_id: str = ""
    agent: str = ""


_NOT_DRAWN = Edge("unknown", None, 0, "not drawn yet")


@dataclass(slots=True, eq=False)
class Draft:
    """Hold a turn that is being drawn.

    Args:
        ask: The request, with its whole conversation.
        evidence: What it says of itself.
        number: Of the request in its session.
        again: The turn that the client asks for once more.
        retry: What shows that it does.
        doubt: See `Attempts.doubt`.
        prepared: What the engine gets; None until it is known.
        edge: How that came about; where it leads is known once the turn is recorded.
        started: Unix time in seconds.
        new_key: The request's key was not known before.
        cancel: Stops what draws it.
        broken: Why it was stopped.
    """

    ask: Ask
    evidence: Evidence
    number: int
    again: Attempts | None
    retry: str
    doubt: str
    prepared: Prepared | None = None
    edge: Edge = _NOT_DRAWN
    started: float = field(default_factory=time.time)
    new_key: bool = False
    cancel: Callable[[], object] = lambda: None
    broken: Failure | None = None

    def break_off(self, reason: Failure) -> None:
        """Stop drawing it.

        Args:
            reason: Stands in the record.
        """
        self.broken = self.broken or reason
        self.cancel()

    @property
    def context(self) -> Context:
        """What the engine gets."""
        assert self.prepared is not None  # it is known
        return self.prepared.context

    @property
    def conversation(self) -> tuple[Message, ...]:
        """All messages of the request, without the beginning of the turn."""
        assert self.prepared is not None  # it is known
        return self.prepared.conversation

    @property
    def prefill(self) -> str:
        """The beginning of the turn that the client wrote."""
        assert self.prepared is not None  # it is known
        return self.prepared.prefill

    @property
    def messages(self) -> tuple[Message, ...]:
        """What a trace holds of the conversation: what is new behind a continuation's source, else all of it."""
        assert self.prepared is not None  # it is known
        return self.prepared.news if self.edge.kind == "continuation" else self.prepared.rendered


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Hold what became of one choice.

    Args:
        completion: What the engine drew; as far as it came, where it was broken off.
        told: What the client is told.
        failure: Why there is no turn.
        told_tokens: Ids of which the client saw what they say; None where it was to get all.
        said: The turn, read; None where nobody read it.
    """

    completion: Completion
    told: Message
    failure: Failure | None = None
    told_tokens: int | None = None
    said: AssistantMessage | None = None


def facts_of(draft: Draft, answer: Answer) -> dict[str, Any]:
    """Return what a trace keeps of a request beside its ids; what says nothing is left out."""
    ask, evidence = draft.ask, draft.evidence
    facts = {
        "protocol": ask.protocol,
        "model": ask.model,
        "request": draft.number,
        "request_id": evidence.request_id,
        "agent": evidence.agent,
        "user": ask.user,
        "metadata": dict(ask.metadata),
        "ignored": list(ask.ignored),
        "tool_choice": ask.tool_name or ask.tool_choice if ask.tool_choice != "auto" else "",
        "replaced": ask.replaced or None,
        "images": [image.sha256 for image in ask.images],
        "rendered": draft.prepared.reason if draft.prepared is not None else "",
        "retry": draft.retry,
        "told_tokens": answer.told_tokens,
    }
    return {name: value for name, value in facts.items() if value or type(value) is int}
