"""What both gateways share: the wire to the agent on one side, and to the engine's token route on the other."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import requests

from tito_conformance.models import Model
from tito_conformance.server import Answer, Asked, JsonServer

__all__ = ["Drawn", "Gateway", "Turn", "draw"]

_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Drawn:
    """Hold what the engine said about a turn.

    Args:
        text: The text, special tokens left out.
        ids: The sampled ids; None where it told none.
        logprobs: Their log-probabilities.
        prompt_ids: The prompt ids that it saw.
        finish_reason: Why the turn ended.
        stop: The stop string that ended it, if one did.
    """

    text: str
    ids: list[int] | None
    logprobs: list[float] | None
    prompt_ids: list[int] | None
    finish_reason: str
    stop: str | None


@dataclass(frozen=True, slots=True)
class Turn:
    """Hold what a gateway answers.

    Args:
        message: The assistant's message.
        drawn: What the engine said; ids that are None in it are told as such.
        drift: The classes of drift that the gateway declares.
    """

    message: Mapping[str, Any]
    drawn: Drawn
    drift: Sequence[str] = ()


class Gateway(ABC):
    """Speak OpenAI chat on the loopback interface, and completions with the engine behind it.

    Args:
        engine: The engine's URL.
        models: What is served.
        port: 0 lets the system choose.

    Attributes:
        url: The base of the API.
    """

    def __init__(self, engine: str, models: Sequence[Model], port: int = 0) -> None:
        self.engine = engine
        self._models = {model.name: model for model in models}
        self._server = JsonServer(self._handle, port)
        self.url = self._server.url + "/v1"

    @abstractmethod
    def turn(self, session: str, body: Mapping[str, Any], model: Model) -> Turn:
        """Answer a request.

        Raises:
            ValueError: The request cannot be answered.
        """

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _handle(self, asked: Asked) -> Answer:
        if asked.path == "/v1/models":
            return Answer({"object": "list", "data": [{"id": name, "object": "model"} for name in self._models]})
        if asked.path != "/v1/chat/completions":
            return Answer.error(404, f"no route {asked.path}")
        model = self._models.get(asked.body.get("model", ""))
        if model is None:
            return Answer.error(404, f"no model {asked.body.get('model')!r}")
        try:
            turn = self.turn(asked.session, asked.body, model)
        except ValueError as error:
            return Answer.error(400, str(error))
        reply = _reply(asked.body, turn)
        return Answer(events=_events(reply)) if asked.body.get("stream") else Answer(reply)


def draw(engine: str, model: Model, prompt: str | list[int], body: Mapping[str, Any]) -> Drawn:
    """Ask the engine for a turn.

    Args:
        engine: Its URL.
        model: The model.
        prompt: Text or ids.
        body: The agent's request, whose sampling parameters hold.

    Raises:
        ValueError: The engine refuses.
    """
    asked = {
        "model": model.name,
        "prompt": prompt,
        "logprobs": 0,
        "return_token_ids": True,
        **{key: body[key] for key in ("temperature", "top_p", "max_tokens", "stop", "seed") if key in body},
    }
    with requests.Session() as session:
        session.trust_env = False
        response = session.post(f"{engine}/v1/completions", json=asked, timeout=_SECONDS)
    if response.status_code != 200:
        raise ValueError(f"the engine answered {response.status_code}: {response.text[:200]}")
    choice = response.json()["choices"][0]
    return Drawn(
        text=choice["text"],
        ids=choice.get("token_ids"),
        logprobs=(choice.get("logprobs") or {}).get("token_logprobs"),
        prompt_ids=choice.get("prompt_token_ids"),
        finish_reason=choice["finish_reason"],
        stop=choice.get("stop_reason") if isinstance(choice.get("stop_reason"), str) else None,
    )


def _reply(body: Mapping[str, Any], turn: Turn) -> dict[str, Any]:
    drawn = turn.drawn
    finish = "tool_calls" if turn.message.get("tool_calls") and drawn.finish_reason == "stop" else drawn.finish_reason
    choice: dict[str, Any] = {"index": 0, "message": turn.message, "finish_reason": finish, "logprobs": None}
    reply: dict[str, Any] = {"object": "chat.completion", "model": body["model"], "choices": [choice]}
    if body.get("logprobs") and drawn.logprobs is not None:
        choice["logprobs"] = {"content": [{"token": "", "logprob": value} for value in drawn.logprobs]}
    if body.get("return_token_ids"):
        choice["token_ids"], reply["prompt_token_ids"] = drawn.ids, drawn.prompt_ids
    if turn.drift:
        reply["drift"] = list(turn.drift)
    return reply


def _events(reply: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a whole reply as one event: it is asked for in full before anything is sent."""
    choice = dict(reply["choices"][0])
    delta = dict(choice.pop("message"))
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(delta["tool_calls"])]
    yield {**reply, "object": "chat.completion.chunk", "choices": [{**choice, "delta": delta}]}
