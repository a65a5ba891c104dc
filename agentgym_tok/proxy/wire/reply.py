"""What a client is answered, the same for every protocol."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from agentgym_tok.policies.http.json_bytes import json_bytes
from agentgym_tok.types import AssistantMessage, FinishReason, ToolCall

__all__ = [
    "CallId",
    "Choice",
    "Opening",
    "Reply",
    "TokenLogprob",
    "Usage",
    "arguments_text",
    "call_namer",
    "json_bytes",
    "wire_id",
]

CallId: TypeAlias = Callable[[int, int], str]
"""Names a call by choice and by place among the choice's calls."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Hold one token as clients see it.

    Args:
        text: Its text; U+FFFD where it is no whole sign.
        logprob: In nats.
        bytes: Its bytes.
        top: The likeliest tokens at its place, likeliest first; they have no `top` of their own.
    """

    text: str
    logprob: float
    bytes: bytes
    top: tuple["TokenLogprob", ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Count tokens.

    Args:
        prompt: Of the context.
        completion: Of all choices, reasoning and stop tokens included.
        cached: Of the context, those that the engine still knew.
        reasoning: Of the completion, those of reasoning.
    """

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """Hold one turn as the client is told it.

    Args:
        message: What the client is told, as `said` of a `WireStream` returns it.
        finish: Why it ended.
        stop: The stop string that ended it, where one did.
        index: Its place among the choices.
        logprobs: Of its tokens, where the client wants them.
        ids: What was drawn, where the client wants it and the engine told it.
    """

    message: AssistantMessage
    finish: FinishReason
    stop: str | None = None
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Hold a whole answer.

    Args:
        id: Its id, in the shape of the protocol; see `wire_id`.
        created: Unix time in seconds.
        model: The model's name.
        choices: One for each turn that was asked for.
        usage: Token counts.
        prompt_ids: The context, where the client wants it.
        drift: Why the context does not go on from what was drawn before, or why a choice cannot be trained.
    """

    id: str
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: Usage
    prompt_ids: tuple[int, ...] | None = None
    drift: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """Hold what is known of an answer before its first token.

    Args:
        id: Its id, in the shape of the protocol; see `wire_id`.
        created: Unix time in seconds.
        model: The model's name.
        call_id: Names the calls whose dialect gives them no id; see `call_namer`.
        prompt_tokens: Of the context.
        cached_tokens: Those of them that the engine still knew.
        prompt_ids: The context itself, where the client wants it.
        drift: Why it does not go on from what was drawn before.
    """

    id: str
    created: int
    model: str
    call_id: CallId = field(repr=False)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_ids: tuple[int, ...] | None = None
    drift: tuple[str, ...] = ()


def wire_id(prefix: str, *parts: str | int) -> str:
    """Make an id in the shape that clients expect; equal parts give equal ids.

    Args:
        prefix: `chatcmpl-`, `resp_`, `msg_`, `call_` or `toolu_`.
        parts: What it is the id of, such as session, turn and place.
    """
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()
    return f"{prefix}{digest}"


def call_namer(prefix: str, session: str, turn: int | str) -> CallId:
    """Return the function that names the calls of a turn.

    Args:
        prefix: `call_` or `toolu_`.
        session: The session's id, which is not to be read from the call's.
        turn: The turn in it.
    """
    return lambda choice, index: wire_id(prefix, session, turn, choice, index)


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments as JSON text, or as whatever text they are."""
    if call.arguments is None:
        return call.raw
    text = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)
    return text if text.isascii() or _is_utf8(text) else json.dumps(dict(call.arguments), default=str)


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in text)
