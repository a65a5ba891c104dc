"""Answers of OpenAI's chat completions, whole and as a stream of chunks (package openai 3.57)."""

# ruff: noqa: ARG002 (one shape for all protocols)

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from agentgym_tok.chat.deltas import CallArguments, CallBegun, ReasoningDelta, TextDelta, TurnDelta
from agentgym_tok.proxy.wire import sse
from agentgym_tok.proxy.wire.ask import Ask
from agentgym_tok.proxy.wire.openai_errors import error_document
from agentgym_tok.proxy.wire.reply import Choice, Opening, Reply, TokenLogprob, Usage, json_bytes
from agentgym_tok.proxy.wire.telling import Telling
from agentgym_tok.types import AssistantMessage, FinishReason

__all__ = ["Stream", "logprob_of", "reply_body"]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def reply_body(reply: Reply, ask: Ask) -> bytes:
    """Write a whole answer; reasoning is in `reasoning_content`, where DeepSeek's and vLLM's clients look for it.

    Ids stand where vLLM has them; `drift`, by which clients know what of them is not to be trained, is our own.
    """
    choices = [_choice(choice, ask) for choice in reply.choices]
    head = {"id": reply.id, "object": "chat.completion", "created": reply.created, "model": reply.model}
    told = _told(reply.prompt_ids, reply.drift)
    return json_bytes({**head, "choices": choices, "usage": _usage(reply.usage), **told})


class Stream:
    """Write an answer piece by piece.

    Args:
        ask: The request.
        opening: What is known before the first token.
    """

    def __init__(self, ask: Ask, opening: Opening) -> None:
        self._usage_asked = ask.include_usage
        self._head = {
            "id": opening.id,
            "object": "chat.completion.chunk",
            "created": opening.created,
            "model": opening.model,
        }
        self._first = _told(opening.prompt_ids, opening.drift)
        self._tellings = [Telling(opening.call_id, index) for index in range(ask.n)]

    def start(self) -> bytes:
        """Return the chunks before the first piece."""
        role = {"role": "assistant", "content": ""}
        return b"".join(
            self._chunk(index, role, told=_NOTHING if index else self._first) for index in range(len(self._tellings))
        )

    def add(
        self, delta: TurnDelta, index: int = 0, logprobs: Sequence[TokenLogprob] = (), ids: Sequence[int] = ()
    ) -> bytes:
        """Return the chunks of a piece; empty where the client is told nothing of it.

        Args:
            delta: The piece.
            index: The choice that it belongs to.
            logprobs: Of the tokens since the last piece, where the client wants them.
            ids: Those tokens themselves, where the client wants them.
        """
        return self._tell(index, self._tellings[index].add(delta), logprobs, ids)

    def close(
        self,
        finish: FinishReason,
        stop: str | None = None,
        index: int = 0,
        turn: AssistantMessage | None = None,
        drift: Sequence[str] = (),
    ) -> bytes:
        """Return the chunks that end a choice.

        Args:
            finish: Why it ended.
            stop: The stop string that ended it, which this protocol does not say.
            index: The choice.
            turn: The whole turn, for what no piece of it could tell.
            drift: Why the choice cannot be trained.
        """
        last = self._tell(index, self._tellings[index].finish(turn))
        finished = _finish(finish, self._tellings[index].message())
        return last + self._chunk(index, {}, finish=finished, told=_told(None, drift))

    def end(self, usage: Usage) -> bytes:
        """Return what ends the stream, once all choices are closed."""
        counts = {"choices": [], "usage": _usage(usage)}
        return (sse.data({**self._head, **counts}) if self._usage_asked else b"") + b"data: [DONE]\n\n"

    def fail(self, status: int, message: str) -> bytes:
        """Return what ends the stream where the answer cannot go on; clients raise it."""
        return sse.data({"error": error_document(status, message)})

    def ping(self) -> bytes:
        """Return what keeps the connection open."""
        return sse.COMMENT

    def said(self, index: int = 0) -> AssistantMessage:
        """Return what the client was told of a choice so far."""
        return self._tellings[index].message()

    def _tell(
        self,
        index: int,
        deltas: Iterable[TurnDelta],
        logprobs: Sequence[TokenLogprob] = (),
        ids: Sequence[int] = (),
    ) -> bytes:
        told = b""
        for delta in deltas:
            if (said := _delta(delta)) is not None:
                # All of them stand on the first chunk of the piece.
                told, logprobs, ids = told + self._chunk(index, said, logprobs, ids), (), ()
        return told + self._chunk(index, {}, logprobs, ids) if logprobs or ids else told

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: Sequence[TokenLogprob] = (),
        ids: Sequence[int] = (),
        *,
        finish: str | None = None,
        told: Mapping[str, Any] = _NOTHING,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": _logprobs(logprobs), "finish_reason": finish}
        if ids:
            choice["token_ids"] = list(ids)
        usage = {"usage": None} if self._usage_asked else {}
        return sse.data({**self._head, "choices": [choice], **usage, **told})


def _delta(delta: TurnDelta) -> dict[str, Any] | None:
    match delta:
        case TextDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case CallBegun(index, name, id_):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": id_, "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
    return None


def _choice(choice: Choice, ask: Ask) -> dict[str, Any]:
    said = choice.message
    message: dict[str, Any] = {"role": "assistant", "content": said.content or (None if said.tool_calls else "")}
    message |= {"refusal": None, "annotations": []}
    if said.reasoning is not None:
        message["reasoning_content"] = said.reasoning
    if said.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
            for call in said.tool_calls
        ]
    return {
        "index": choice.index,
        "message": message,
        "logprobs": _logprobs(choice.logprobs) if ask.logprobs else None,
        "finish_reason": _finish(choice.finish, said),
        **({"token_ids": choice.ids} if ask.token_ids else {}),
    }


def _told(prompt_ids: Sequence[int] | None, drift: Sequence[str]) -> dict[str, Any]:
    """Return what stands at the top of an answer about its ids."""
    told: dict[str, Any] = {} if prompt_ids is None else {"prompt_token_ids": prompt_ids}
    return told | ({"drift": drift} if drift else {})


def _finish(finish: FinishReason, message: AssistantMessage) -> str:
    if finish in {"length", "truncated"}:
        return "length"
    return "tool_calls" if message.tool_calls else "stop"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _logprobs(logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    if not logprobs:
        return None
    return {"content": [{**logprob_of(one), "top_logprobs": [logprob_of(top) for top in one.top]} for one in logprobs]}


def logprob_of(token: TokenLogprob) -> dict[str, Any]:
    """Write one token; -inf, which JSON does not have, is the -9999 that OpenAI writes for it."""
    return {"token": token.text, "bytes": list(token.bytes), "logprob": max(token.logprob, -9999.0)}
