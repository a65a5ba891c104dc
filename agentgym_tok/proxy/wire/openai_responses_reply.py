"""Answers of OpenAI's responses, whole and as a stream of numbered events (package openai 3.57)."""

# ruff: noqa: ARG002 (one shape for all protocols)

from collections.abc import Sequence
from typing import Any

from agentgym_tok.chat.deltas import TurnDelta
from agentgym_tok.proxy.wire import sse
from agentgym_tok.proxy.wire.ask import Ask
from agentgym_tok.proxy.wire.openai_responses_items import Items
from agentgym_tok.proxy.wire.reply import Opening, Reply, TokenLogprob, Usage, json_bytes
from agentgym_tok.proxy.wire.telling import Telling, pieces_of
from agentgym_tok.types import AssistantMessage, FinishReason

__all__ = ["Stream", "reply_body"]


def reply_body(reply: Reply, ask: Ask) -> bytes:
    """Write a whole answer; it has the items that the stream of the same turn has."""
    (choice,) = reply.choices
    items = Items(reply.id)
    items.logprobs.extend(choice.logprobs)
    for delta in pieces_of(choice.message):
        items.add(delta)
    items.close(choice.finish)
    return json_bytes(_ended(ask, reply, items, choice.finish, reply.usage))


class Stream:
    """Write an answer piece by piece.

    Args:
        ask: The request.
        opening: What is known before the first token.
    """

    def __init__(self, ask: Ask, opening: Opening) -> None:
        self._ask, self._opening = ask, opening
        self._telling = Telling(opening.call_id)
        self._items = Items(opening.id)
        self._finish: FinishReason = "stop"

    def start(self) -> bytes:
        """Return the events before the first piece."""
        document = _document(self._ask, self._opening, "in_progress")
        self._items.event("response.created", response=document)
        self._items.event("response.in_progress", response=document)
        return self._items.written()

    def add(
        self, delta: TurnDelta, index: int = 0, logprobs: Sequence[TokenLogprob] = (), ids: Sequence[int] = ()
    ) -> bytes:
        """Return the events of a piece; empty where the client is told nothing of it.

        Args:
            delta: The piece.
            index: The choice, of which this protocol has one.
            logprobs: Of the tokens since the last piece, where the client wants them.
            ids: Which this protocol has no place for.
        """
        self._items.logprobs.extend(logprobs)
        for one in self._telling.add(delta):
            self._items.add(one)
        return self._items.written()

    def close(
        self,
        finish: FinishReason,
        stop: str | None = None,
        index: int = 0,
        turn: AssistantMessage | None = None,
        drift: Sequence[str] = (),
    ) -> bytes:
        """Return the events that end the turn.

        Args:
            finish: Why it ended.
            stop: The stop string that ended it, which this protocol does not have.
            index: The choice, of which this protocol has one.
            turn: The whole turn, for what no piece of it could tell.
            drift: Which this protocol has no place for.
        """
        for one in self._telling.finish(turn):
            self._items.add(one)
        self._items.close(finish)
        self._finish = finish
        return self._items.written()

    def end(self, usage: Usage) -> bytes:
        """Return what ends the stream, once the turn is closed."""
        document = _ended(self._ask, self._opening, self._items, self._finish, usage)
        self._items.event(f"response.{document['status']}", response=document)
        return self._items.written()

    def fail(self, status: int, message: str) -> bytes:
        """Return what ends the stream where the answer cannot go on."""
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        document = _document(self._ask, self._opening, "failed") | {"error": {"code": code, "message": message}}
        self._items.event("response.failed", response=document | {"output": self._items.items})
        return self._items.written()

    def ping(self) -> bytes:
        """Return what keeps the connection open."""
        return sse.COMMENT

    def said(self, index: int = 0) -> AssistantMessage:
        """Return what the client was told so far."""
        return self._telling.message()


def _ended(ask: Ask, answer: Opening | Reply, items: Items, finish: FinishReason, usage: Usage) -> dict[str, Any]:
    cut = finish in {"length", "truncated"}
    document = _document(ask, answer, "incomplete" if cut else "completed")
    return document | {
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": items.items,
        "usage": {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
            "output_tokens": usage.completion,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.prompt + usage.completion,
        },
    }


def _document(ask: Ask, answer: Opening | Reply, status: str) -> dict[str, Any]:
    sampling = ask.sampling
    asked = sampling.model_fields_set
    choice = {"type": "function", "name": ask.tool_name} if ask.tool_choice == "tool" else ask.tool_choice
    return {
        "id": answer.id,
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": ask.messages[0].content if ask.lead else None,
        "max_output_tokens": sampling.max_tokens if "max_tokens" in asked else None,
        "metadata": dict(ask.metadata),
        "model": answer.model,
        "output": [],
        "parallel_tool_calls": ask.parallel_tool_calls is not False,
        "previous_response_id": ask.previous_response_id,
        "reasoning": {"effort": None, "summary": None},
        "temperature": sampling.temperature if "temperature" in asked else None,
        "text": {"format": {"type": "text"}},
        "tool_choice": choice,
        "tools": [{"type": "function", **tool["function"], "strict": None} for tool in ask.tools],
        "top_p": sampling.top_p if "top_p" in asked else None,
        "truncation": "disabled",
        "usage": None,
        "user": ask.user,
    }
