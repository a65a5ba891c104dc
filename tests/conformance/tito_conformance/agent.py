"""A plain agent: it keeps messages, sends them all each turn, and echoes what it was told. It knows nothing of ids."""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from tito_conformance.script import Case, Step

__all__ = ["Agent", "Received", "Stuck"]

_SECONDS = 60


class Stuck(Exception):
    """The agent cannot go on, for a reason that lies in what the gateway offers, not in its ids."""


@dataclass(slots=True)
class Received:
    """Hold what a gateway answered.

    Args:
        status: HTTP status.
        message: The assistant's message.
        prompt_ids: The prompt ids that it tells, if it tells any.
        ids: The sampled ids that it tells.
        logprobs: The log-probabilities that it tells.
        drift: The classes of drift that it declares.
        error: What went wrong.
    """

    status: int
    message: dict[str, Any] = field(default_factory=dict)
    prompt_ids: list[int] | None = None
    ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    drift: tuple[str, ...] = ()
    error: str = ""


class Agent:
    """Hold one conversation with a gateway.

    Args:
        url: The gateway's base, up to and without `/chat/completions`; `{session}` in it names the conversation.
        case: Gives the tools and the model.
        session: The conversation's name.
    """

    def __init__(self, url: str, case: Case, session: str) -> None:
        self._url = url.replace("{session}", session).rstrip("/") + "/chat/completions"
        self._model = case.model
        self._tools = list(case.tools)
        self._headers = {"authorization": f"Bearer {session}", "x-session-id": session}
        self.history: list[dict[str, Any]] = []
        """The messages, as the agent sends them."""

    @property
    def tools(self) -> list[Mapping[str, Any]]:
        """The tools, as the agent sends them."""
        return self._tools

    def take(self, step: Step) -> Received:
        """Send the next request and keep the answer.

        Raises:
            Stuck: The gateway does not serve the model, or told no call although the policy made one.
        """
        self.history += self._answered(step)
        if step.edit is not None:
            self.history = step.edit(copy.deepcopy(self.history))
        if step.tools is not None:
            self._tools = list(step.tools)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": self.history,
            "temperature": 1.0,
            "max_tokens": 256,
            "logprobs": True,
            "top_logprobs": 0,
            "return_token_ids": True,
            **({"tools": self._tools} if self._tools else {}),
            **step.options,
        }
        received = _post(self._url, body, self._headers)
        if received.status == 404:
            raise Stuck(f"the gateway does not serve {self._model}")
        if received.message:
            self.history.append(received.message)
        return received

    def _answered(self, step: Step) -> list[dict[str, Any]]:
        """Return the step's messages; tool results get the ids of the calls that were told last."""
        calls: list[Mapping[str, Any]] = []
        if self.history and self.history[-1]["role"] == "assistant":
            calls = list(self.history[-1].get("tool_calls") or ())
        messages = []
        for message in step.new:
            given = dict(message)
            if given["role"] == "tool" and "tool_call_id" not in given:
                if not calls:
                    raise Stuck("the gateway told no tool call")
                given["tool_call_id"] = calls.pop(0)["id"]
            messages.append(given)
        return messages


def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Received:
    # ASCII, as JavaScript writes it too: lone surrogates travel as escapes.
    data = json.dumps(body).encode()
    with requests.Session() as session:
        session.trust_env = False  # a proxy of the machine must not see loopback traffic
        try:
            response = session.post(
                url, data, headers={"content-type": "application/json", **headers}, timeout=_SECONDS
            )
        except requests.RequestException as error:
            return Received(0, error=f"{type(error).__name__}: {error}")
    if response.status_code != 200:
        return Received(response.status_code, drift=_declared(_json(response)), error=response.text[:200])
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return _joined(_events(response.content.decode("utf-8")))
    return _read(response.json())


def _json(response: requests.Response) -> dict[str, Any]:
    """Return an error's body; empty where it is no JSON object."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _read(reply: Mapping[str, Any]) -> Received:
    choice = reply["choices"][0]
    logprobs = choice.get("logprobs") or {}
    return Received(
        200,
        message=choice["message"],
        prompt_ids=reply.get("prompt_token_ids", choice.get("prompt_token_ids")),
        ids=choice.get("token_ids"),
        logprobs=[entry["logprob"] for entry in logprobs["content"]] if logprobs.get("content") else None,
        drift=_declared(reply),
    )


def _joined(events: Iterator[Mapping[str, Any]]) -> Received:
    """Put a stream together again, as OpenAI's clients do."""
    received = Received(200, message={"role": "assistant", "content": None})
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        received.drift += _declared(event)
        received.prompt_ids = event.get("prompt_token_ids") or received.prompt_ids
        for choice in event.get("choices", ()):
            delta = choice.get("delta") or {}
            for key in ("content", "reasoning_content"):
                if delta.get(key):
                    received.message[key] = (received.message.get(key) or "") + delta[key]
            for call in delta.get("tool_calls") or ():
                _add_call(calls.setdefault(call["index"], {}), call)
            if choice.get("token_ids") is not None:
                received.ids = (received.ids or []) + choice["token_ids"]
            content = (choice.get("logprobs") or {}).get("content")
            if content:
                received.logprobs = (received.logprobs or []) + [entry["logprob"] for entry in content]
    if calls:
        received.message["tool_calls"] = [calls[place] for place in sorted(calls)]
    return received


def _add_call(call: dict[str, Any], delta: Mapping[str, Any]) -> None:
    function = call.setdefault("function", {"name": "", "arguments": ""})
    for key, text in (delta.get("function") or {}).items():
        function[key] += text or ""
    call["type"] = "function"
    call["id"] = delta.get("id") or call.get("id", "")


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _declared(reply: Mapping[str, Any]) -> tuple[str, ...]:
    drift = reply.get("drift") or ()
    return tuple(entry["class"] if isinstance(entry, Mapping) else str(entry) for entry in drift)
