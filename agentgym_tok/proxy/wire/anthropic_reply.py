"""Answers of Anthropic's messages, whole and as a stream of events (package anthropic 2.14)."""

# ruff: noqa: ARG001, ARG002 (one shape for all protocols)

from collections.abc import Sequence
from typing import Any, Final

from agentgym_tok.chat.deltas import CallArguments, CallBegun, CallEnded, ReasoningDelta, TextDelta, TurnDelta
from agentgym_tok.proxy.wire import sse
from agentgym_tok.proxy.wire.ask import Ask
from agentgym_tok.proxy.wire.reply import Opening, Reply, TokenLogprob, Usage, json_bytes
from agentgym_tok.proxy.wire.telling import Telling
from agentgym_tok.types import AssistantMessage, FinishReason

__all__ = ["Stream", "error_body", "reply_body"]

_TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOPS: Final[dict[FinishReason, str]] = {"length": "max_tokens", "truncated": "model_context_window_exceeded"}


def error_body(status: int, message: str, param: str | None = None, drift: Sequence[str] = ()) -> bytes:
    """Write the body of an answer that is an error.

    Args:
        status: Of the answer; SDKs choose their exception by it, and try again at 408, 409, 429 and from 500 on.
        message: What is wrong, for people.
        param: The field that is wrong, for which this protocol has no place.
        drift: Which this protocol has no place for.
    """
    return json_bytes(_error(status, message))


def reply_body(reply: Reply, ask: Ask) -> bytes:
    """Write a whole answer; a thinking block is signed with the answer's id."""
    (choice,) = reply.choices
    said = choice.message
    content: list[dict[str, Any]] = []
    if said.reasoning is not None:
        content.append({"type": "thinking", "thinking": said.reasoning, "signature": reply.id})
    if said.content:
        content.append({"type": "text", "text": said.content})
    content.extend(
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in said.tool_calls
    )
    document = _message(reply.id, reply.model, _usage(reply.usage))
    return json_bytes(document | {"content": content} | _stop(choice.finish, choice.stop, said))


class Stream:
    """Write an answer piece by piece; a call comes in one piece, when it has ended.

    Args:
        ask: The request.
        opening: What is known before the first token.
    """

    def __init__(self, ask: Ask, opening: Opening) -> None:
        self._opening = opening
        self._telling = Telling(opening.call_id, objects=True)
        self._blocks = 0
        self._open = ""
        self._stop: dict[str, Any] = {}

    def start(self) -> bytes:
        """Return the events before the first piece."""
        opening = self._opening
        usage = _usage(Usage(opening.prompt_tokens, 0, cached=opening.cached_tokens))
        return sse.event({"type": "message_start", "message": _message(opening.id, opening.model, usage)})

    def add(
        self, delta: TurnDelta, index: int = 0, logprobs: Sequence[TokenLogprob] = (), ids: Sequence[int] = ()
    ) -> bytes:
        """Return the events of a piece; empty where the client is told nothing of it.

        Args:
            delta: The piece.
            index: The choice, of which this protocol has one.
            logprobs: Which this protocol does not have.
            ids: Which this protocol has no place for.
        """
        return b"".join(self._tell(one) for one in self._telling.add(delta))

    def close(
        self,
        finish: FinishReason,
        stop: str | None = None,
        index: int = 0,
        turn: AssistantMessage | None = None,
        drift: Sequence[str] = (),
    ) -> bytes:
        """Return the events that end the turn's last block.

        Args:
            finish: Why the turn ended.
            stop: The stop string that ended it.
            index: The choice, of which this protocol has one.
            turn: The whole turn, for what no piece of it could tell.
            drift: Which this protocol has no place for.
        """
        last = b"".join(self._tell(one) for one in self._telling.finish(turn)) + self._close_block()
        self._stop = _stop(finish, stop, self._telling.message())
        return last

    def end(self, usage: Usage) -> bytes:
        """Return what ends the stream, once the turn is closed."""
        ended = sse.event({"type": "message_delta", "delta": self._stop, "usage": _usage(usage)})
        return ended + sse.event({"type": "message_stop"})

    def fail(self, status: int, message: str) -> bytes:
        """Return what ends the stream where the answer cannot go on; clients raise it."""
        return sse.event(_error(status, message))

    def ping(self) -> bytes:
        """Return what keeps the connection open."""
        return sse.event({"type": "ping"})

    def said(self, index: int = 0) -> AssistantMessage:
        """Return what the client was told so far."""
        return self._telling.message()

    def _tell(self, delta: TurnDelta) -> bytes:
        match delta:
            case TextDelta(text):
                opened = self._open_block("text", {"text": ""})
                return opened + self._delta({"type": "text_delta", "text": text})
            case ReasoningDelta(text):
                opened = self._open_block("thinking", {"thinking": "", "signature": ""})
                return opened + self._delta({"type": "thinking_delta", "thinking": text})
            case CallBegun(_, name, id_):
                return self._open_block("tool_use", {"id": id_, "name": name, "input": {}})
            case CallArguments(_, text):
                return self._delta({"type": "input_json_delta", "partial_json": text})
            case CallEnded():
                return self._close_block()

    def _open_block(self, kind: str, block: dict[str, Any]) -> bytes:
        if kind == self._open:
            return b""
        closed, self._open = self._close_block(), kind
        start = {"type": "content_block_start", "index": self._blocks, "content_block": {"type": kind, **block}}
        return closed + sse.event(start)

    def _close_block(self) -> bytes:
        if not self._open:
            return b""
        thinking = self._open == "thinking"
        signed = self._delta({"type": "signature_delta", "signature": self._opening.id}) if thinking else b""
        stop = sse.event({"type": "content_block_stop", "index": self._blocks})
        self._blocks, self._open = self._blocks + 1, ""
        return signed + stop

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return sse.event({"type": "content_block_delta", "index": self._blocks, "delta": delta})


def _message(id_: str, model: str, usage: dict[str, Any]) -> dict[str, Any]:
    document = {"id": id_, "type": "message", "role": "assistant", "model": model, "content": []}
    return document | {"stop_reason": None, "stop_sequence": None, "usage": usage}


def _stop(finish: FinishReason, stop: str | None, message: AssistantMessage) -> dict[str, Any]:
    if finish in _STOPS:
        return {"stop_reason": _STOPS[finish], "stop_sequence": None}
    if stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": "tool_use" if message.tool_calls else "end_turn", "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


def _error(status: int, message: str) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
