"""How vLLM writes a turn on each of its routes, with the mistakes that engines are known to make."""

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tito_conformance.messages import to_openai
from tito_conformance.models import Model
from tito_conformance.script import Reply

__all__ = [
    "Sampled",
    "chat_events",
    "chat_reply",
    "completion_events",
    "completion_reply",
    "logprob_of",
    "token_events",
    "token_reply",
]

_TOKENS = {"request_id": "generate-tokens-1", "prompt_token_ids": None, "output_mode": "tokens"}

SENTINEL = -9999.0
"""What vLLM writes where a log-probability is missing."""


def logprob_of(place: int, index: int) -> float:
    """Return the log-probability of a sampled id: made up, exact in float32, and another one at each place."""
    return -(1 + (7 * place + index) % 61) / 16


@dataclass(frozen=True, slots=True)
class Sampled:
    """Hold a turn as the engine drew it.

    Args:
        model: The model.
        reply: The script.
        prompt: Prompt ids.
        ids: Sampled ids.
    """

    model: Model
    reply: Reply
    prompt: tuple[int, ...]
    ids: tuple[int, ...]

    @property
    def text(self) -> str:
        """The text as engines return it: no special tokens, no stop string, half characters as U+FFFD."""
        text = self.model.spell(self.ids, skip_special=True).decode("utf-8", "replace")
        return text if self.reply.stop is None else text.rpartition(self.reply.stop)[0]

    @property
    def told_ids(self) -> list[int] | None:
        """The ids that the response tells."""
        if self.reply.fault == "no_ids":
            return None
        if self.reply.fault == "prompt_tail":
            return [*self.prompt[-2:], *self.ids]
        if self.reply.fault == "stop_id_trimmed":
            return [*self.ids[:-1]]
        return [*self.ids]

    def streamed_ids(self, tools: Any) -> list[int]:
        """Return the ids that a stream of the chat route tells."""
        return [index for place, index in enumerate(self.ids) if not self.is_lost(place, tools)]

    def is_lost(self, place: int, tools: Any) -> bool:
        """Tell whether a stream leaves out a sampled id; with tools a parser stands before it."""
        fault = self.reply.fault
        if fault == "control_ids_lost":
            return bool(tools) and self.ids[place] in self.model.control
        return fault == "no_ids" or (fault == "first_ids_only" and place > 0)

    @property
    def logprobs(self) -> list[float]:
        """The log-probabilities that the response tells."""
        logprobs = [logprob_of(place, index) for place, index in enumerate(self.ids)]
        if self.reply.fault == "sentinel":
            logprobs[len(logprobs) // 2] = SENTINEL
        if self.reply.fault == "extra_logprob":
            logprobs.append(-0.5)
        return logprobs

    def message(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the assistant's message as the engine's own parser reads it."""
        read = self.model.chat.parse(np.array(self.ids, np.int32), body.get("tools"))
        message = to_openai(read, str(len(self.prompt)), self.reply.stop)
        return message if message.keys() > {"role", "content"} else {**message, "content": self.text}

    def head(self, body: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """Return what every response and every event begins with."""
        return {"id": f"{kind}-1", "object": kind, "created": 0, "model": body.get("model")}

    @property
    def usage(self) -> dict[str, int]:
        """Token counts."""
        prompt, completion = len(self.prompt), len(self.ids)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def counted(self, body: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the event of the token counts, where a stream is asked for it."""
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": self.usage}

    def end(self) -> dict[str, Any]:
        """Return why the turn ended."""
        return {"finish_reason": self.reply.finish, "stop_reason": self.reply.stop}

    def told_logprobs(self, body: Mapping[str, Any], start: int = 0, end: int | None = None) -> dict[str, Any] | None:
        """Return log-probabilities in the shape of chat completions; without `top_logprobs` vLLM tells none.

        Args:
            body: The request.
            start: The first of them.
            end: Behind the last; None for all.
        """
        if not body.get("logprobs") or body.get("top_logprobs") is None:
            return None
        spelled = [self.model.spell([index]).decode("utf-8", "replace") for index in self.ids]
        if body.get("return_tokens_as_token_ids"):
            spelled = [f"token_id:{index}" for index in self.ids]
        pairs = zip([*spelled, ""], self.logprobs, strict=False)  # one more name, for what belongs to no token
        return {"content": [{"token": token, "logprob": value} for token, value in pairs][start:end]}


def chat_reply(sampled: Sampled, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn as `/v1/chat/completions` does."""
    choice = {"index": 0, "message": sampled.message(body), "logprobs": sampled.told_logprobs(body), **sampled.end()}
    reply = {**sampled.head(body, "chat.completion"), "choices": [choice], "usage": sampled.usage}
    if body.get("return_token_ids"):
        choice["token_ids"] = sampled.told_ids
        reply["prompt_token_ids"] = [*sampled.prompt]
    return reply


def chat_events(sampled: Sampled, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a turn as `/v1/chat/completions` streams it: the prompt's ids first, then the ids of each piece."""
    head = sampled.head(body, "chat.completion.chunk")
    wants_ids = bool(body.get("return_token_ids"))
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    yield {**head, "choices": [first], **({"prompt_token_ids": [*sampled.prompt]} if wants_ids else {})}
    message = sampled.message(body)
    parsed = {key: value for key, value in message.items() if key != "role" and value is not None}
    pieces = [""] * len(sampled.ids) if parsed.keys() - {"content"} else [*_pieces(sampled)]
    for place, (index, text) in enumerate(zip(sampled.ids, pieces, strict=True)):
        choice: dict[str, Any] = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": None}
        choice["logprobs"] = sampled.told_logprobs(body, place, place + 1)
        if wants_ids and not sampled.is_lost(place, body.get("tools")):
            choice["token_ids"] = [index]
        yield {**head, "choices": [choice]}
    delta = parsed if parsed.keys() - {"content"} else {}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(delta["tool_calls"])]
    yield {**head, "choices": [{"index": 0, "delta": delta, **sampled.end()}]}
    yield from sampled.counted(body, head)


def completion_reply(sampled: Sampled, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn as `/v1/completions` does: both id lists stand inside the choice."""
    choice: dict[str, Any] = {"index": 0, "text": sampled.text, "logprobs": None, **sampled.end()}
    if body.get("logprobs") is not None:
        choice["logprobs"] = {"token_logprobs": sampled.logprobs}
    if body.get("return_token_ids"):
        choice["token_ids"], choice["prompt_token_ids"] = sampled.told_ids, [*sampled.prompt]
    return {**sampled.head(body, "text_completion"), "choices": [choice], "usage": sampled.usage}


def completion_events(sampled: Sampled, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a turn as `/v1/completions` streams it."""
    head = sampled.head(body, "text_completion")
    for place, (index, text) in enumerate(zip(sampled.ids, _pieces(sampled), strict=True)):
        choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None, "finish_reason": None}
        if body.get("logprobs") is not None:
            choice["logprobs"] = {"token_logprobs": sampled.logprobs[place : place + 1]}
        if body.get("return_token_ids") and not sampled.is_lost(place, None):
            choice["token_ids"] = [index]
            choice |= {"prompt_token_ids": [*sampled.prompt]} if place == 0 else {}
        yield {**head, "choices": [choice]}
    yield {**head, "choices": [{"index": 0, "text": "", "logprobs": None, **sampled.end()}]}
    yield from sampled.counted(body, head)


def token_reply(sampled: Sampled, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn as `/inference/v1/generate` does: ids only, and the prompt's are not repeated."""
    choice = {"index": 0, "token_ids": sampled.told_ids, "logprobs": _named(sampled, sampling), **sampled.end()}
    choice["weight_versions"] = [{"version": "default", "start": 0, "end": len(sampled.ids)}]
    return {**_TOKENS, "choices": [choice]}


def token_events(sampled: Sampled, sampling: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a turn as `/inference/v1/generate` streams it; only the last event says which weights drew it."""
    whole = token_reply(sampled, sampling)["choices"][0]
    told, entries = sampled.told_ids, (whole["logprobs"] or {"content": []})["content"]
    for place in range(max(len(told or ()), len(entries))):
        choice: dict[str, Any] = {"index": 0, "token_ids": told and told[place : place + 1], "finish_reason": None}
        choice["logprobs"] = {"content": entries[place : place + 1]} if entries else None
        yield {**_TOKENS, "choices": [choice]}
    yield {**_TOKENS, "choices": [{**whole, "token_ids": [], "logprobs": None}]}


def _named(sampled: Sampled, sampling: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return log-probabilities in the shape of the token route."""
    if sampling.get("logprobs") is None:
        return None
    pairs = zip([*sampled.ids, -1], sampled.logprobs, strict=False)
    return {"content": [{"token_id": index, "logprob": value} for index, value in pairs]}


def _pieces(sampled: Sampled) -> Iterator[str]:
    """Yield the text that each id adds; half a character waits for its rest, and what is cut is never sent."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    left = len(sampled.text)
    for place, index in enumerate(sampled.ids):
        text = decode(sampled.model.spell([index], skip_special=True), final=place + 1 == len(sampled.ids))[:left]
        left -= len(text)
        yield text
