"""The protocols by the path of their requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from agentgym_tok.chat.deltas import TurnDelta
from agentgym_tok.proxy.wire import anthropic, openai_chat, openai_responses
from agentgym_tok.proxy.wire.ask import Ask
from agentgym_tok.proxy.wire.reply import Opening, Reply, TokenLogprob, Usage
from agentgym_tok.types import AssistantMessage, FinishReason

__all__ = ["WIRES", "Wire", "WireStream"]


class WireStream(Protocol):
    """Write an answer piece by piece: `start`, `add` as often as needed, `close` of each choice, `end`; or `fail`.

    A whole answer is written from what a stream has `said`: then the client is told the same, and has the same ids.
    """

    def start(self) -> bytes:
        """Return the events before the first piece."""
        ...

    def add(
        self, delta: TurnDelta, index: int = 0, logprobs: Sequence[TokenLogprob] = (), ids: Sequence[int] = ()
    ) -> bytes:
        """Return the events of a piece of a choice."""
        ...

    def close(
        self,
        finish: FinishReason,
        stop: str | None = None,
        index: int = 0,
        turn: AssistantMessage | None = None,
        drift: Sequence[str] = (),
    ) -> bytes:
        """Return the events that end a choice."""
        ...

    def end(self, usage: Usage) -> bytes:
        """Return what ends the stream."""
        ...

    def fail(self, status: int, message: str) -> bytes:
        """Return what ends the stream where the answer cannot go on."""
        ...

    def ping(self) -> bytes:
        """Return what keeps the connection open and says nothing."""
        ...

    def said(self, index: int = 0) -> AssistantMessage:
        """Return what the client was told of a choice so far."""
        ...


class ErrorBody(Protocol):
    """Write the body of an answer that is an error."""

    def __call__(self, status: int, message: str, param: str | None = None, drift: Sequence[str] = ()) -> bytes:
        """Return it."""
        ...


@dataclass(frozen=True, slots=True)
class Wire:
    """Speak one protocol.

    Args:
        reply_prefix: What the ids of answers begin with, for `wire_id`.
        call_prefix: What the ids of calls begin with, for `call_namer`.
        parse: Reads a request's body; raises `BadAsk`.
        reply_body: Writes a whole answer.
        stream: Writes one piece by piece.
        error_body: Writes the body of an error from its status, its message, the field and the names of drift.
    """

    reply_prefix: str
    call_prefix: str
    parse: Callable[[bytes], Ask]
    reply_body: Callable[[Reply, Ask], bytes]
    stream: Callable[[Ask, Opening], WireStream]
    error_body: ErrorBody


WIRES: Final[Mapping[str, Wire]] = MappingProxyType(
    {
        "/v1/chat/completions": Wire(
            "chatcmpl-",
            "call_",
            openai_chat.parse,
            openai_chat.reply_body,
            openai_chat.Stream,
            openai_chat.error_body,
        ),
        "/v1/responses": Wire(
            "resp_",
            "call_",
            openai_responses.parse,
            openai_responses.reply_body,
            openai_responses.Stream,
            openai_responses.error_body,
        ),
        "/v1/messages": Wire(
            "msg_",
            "toolu_",
            anthropic.parse,
            anthropic.reply_body,
            anthropic.Stream,
            anthropic.error_body,
        ),
    }
)
