"""A fake engine: it samples what the script says, tells every call apart, and errs where the script wants it to.

It speaks what vLLM speaks: completions of text or ids, chat completions, and the token route, each with token ids,
log-probabilities and streams. A mistake is made on the routes on which real engines make it, so that
a gateway can also prevent one by its choice of route.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tito_conformance.models import Model
from tito_conformance.rendering import as_engines_read
from tito_conformance.replies import (
    Sampled,
    chat_events,
    chat_reply,
    completion_events,
    completion_reply,
    token_events,
    token_reply,
)
from tito_conformance.script import Reply
from tito_conformance.server import Answer, Asked, JsonServer

__all__ = ["Call", "FakeEngine"]


@dataclass(frozen=True, slots=True)
class Call:
    """Hold one call for a turn.

    Args:
        path: The route.
        body: The request.
        sent: The prompt ids that the caller sent; None where it sent text or messages.
        prompt: The prompt ids that the engine sampled from.
    """

    path: str
    body: Mapping[str, Any]
    sent: tuple[int, ...] | None
    prompt: tuple[int, ...]


class FakeEngine:
    """Listen on the loopback interface and answer every call for a turn with the reply that is on.

    Args:
        models: What it serves.
        port: 0 lets the system choose.
        scale_out: Offer the token route, as vLLM does only where it is told to.

    Attributes:
        url: Where it listens.
        calls: Calls for turns since the reply was put on.
    """

    def __init__(self, models: Sequence[Model], port: int = 0, *, scale_out: bool = False) -> None:
        self._models = {model.name: model for model in models}
        self._scale_out = scale_out
        # A gateway may draw a token before it serves.
        self._reply = Reply(("a",), "length")
        self.calls: list[Call] = []
        self._routes: Mapping[str, Callable[[Asked, Model], Answer]] = {
            "/tokenize": self._tokenize,
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completions,
            "/inference/v1/generate": self._generate,
        }
        self._server = JsonServer(self._handle, port)
        self.url = self._server.url

    def put_on(self, reply: Reply) -> None:
        """Answer with this reply from now on."""
        self._reply = reply
        self.calls = []

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
        if asked.path == "/health":
            return Answer({})
        if asked.path == "/v1/models":
            return Answer({"object": "list", "data": [{"id": name, "object": "model"} for name in self._models]})
        if asked.path == "/inference/v1/generate" and not self._scale_out:
            return Answer.error(403, "start with --enable-scale-out")
        route = self._routes.get(asked.path)
        if route is None:
            return Answer.error(404, f"no route {asked.path}")
        model = self._models.get(asked.body.get("model", ""))
        if model is None:
            return Answer.error(404, f"no model {asked.body.get('model')!r}")
        try:
            return route(asked, model)
        except ValueError as error:
            return Answer.error(400, str(error))

    def _tokenize(self, asked: Asked, model: Model) -> Answer:
        body = asked.body
        if "messages" in body:
            ids = model.encode(model.render(as_engines_read(body["messages"]), body.get("tools") or ()))
        else:
            ids = model.encode(body["prompt"], special=body.get("add_special_tokens", True))
        return Answer({"count": len(ids), "tokens": ids, "max_model_len": 32768})

    def _chat(self, asked: Asked, model: Model) -> Answer:
        body = asked.body
        text = model.render(as_engines_read(body["messages"]), body.get("tools") or ())
        sampled = self._sample(asked, model, None, model.encode(text))
        if body.get("stream"):
            return Answer(events=chat_events(sampled, body))
        return Answer(chat_reply(sampled, body))

    def _completions(self, asked: Asked, model: Model) -> Answer:
        body = asked.body
        prompt = body["prompt"]
        if isinstance(prompt, str):
            # The default of completions: whatever the tokenizer adds of its own comes before the text.
            sampled = self._sample(asked, model, None, model.encode(prompt, special=True))
        else:
            sent = prompt[0] if prompt and isinstance(prompt[0], list) else prompt
            sampled = self._sample(asked, model, sent, sent)
        if body.get("stream"):
            return Answer(events=completion_events(sampled, body))
        return Answer(completion_reply(sampled, body))

    def _generate(self, asked: Asked, model: Model) -> Answer:
        body = asked.body
        sampled = self._sample(asked, model, body["token_ids"], body["token_ids"])
        if body.get("stream"):
            return Answer(events=token_events(sampled, body["sampling_params"]))
        return Answer(token_reply(sampled, body["sampling_params"]))

    def _sample(self, asked: Asked, model: Model, sent: list[int] | None, prompt: list[int]) -> Sampled:
        reply = self._reply
        if any(not 0 <= index < model.backend.get_vocab_size() for index in prompt):
            raise ValueError("a prompt id is outside the vocabulary")
        if reply.fault == "prompt_encoded_again" and sent is not None:
            prompt = model.encode(model.spell(sent).decode("utf-8", "replace"))
        self.calls.append(Call(asked.path, asked.body, None if sent is None else tuple(sent), tuple(prompt)))
        return Sampled(model, reply, tuple(prompt), tuple(model.sample(reply.pieces)))
