"""The library's own recording proxy, one for each model, behind one address that passes requests on by their model."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests

from agentgym_tok.proxy import Proxy
from agentgym_tok.trace import TraceStore
from tito_conformance.models import Model
from tito_conformance.server import Answer, Asked, JsonServer

__all__ = ["ProxyGateway"]

_SECONDS = 60


class ProxyGateway:
    """Pass what an agent sends on to the proxy of its model, and what that answers back.

    Args:
        engine: The engine's URL. Each proxy draws a token of it first.
        models: What is served.
        folder: Where the runs go, each under its model's name; whole once the gateway is closed.

    Attributes:
        url: The base of the API.
    """

    def __init__(self, engine: str, models: Sequence[Model], folder: Path) -> None:
        self._proxies: dict[str, Proxy] = {}
        with contextlib.ExitStack() as made:
            for model in models:
                store = TraceStore(folder / model.name, chat=model.chat)
                made.callback(store.close)
                policy = f"vllm:{engine}#{model.name}"
                self._proxies[model.name] = made.enter_context(Proxy(policy, model.chat, store, any_key=True))
            self.url = made.enter_context(JsonServer(self._handle)).url + "/v1"
            self._made = made.pop_all()

    def close(self) -> None:
        """Stop listening, and write what is not written yet."""
        self._made.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _handle(self, asked: Asked) -> Answer:
        proxy = self._proxies.get(asked.body.get("model", ""))
        if proxy is None:
            return Answer.error(404, f"no model {asked.body.get('model')!r}")
        with requests.Session() as session:
            session.trust_env = False
            headers = {"authorization": f"Bearer {asked.session}"}
            response = session.post(proxy.url + asked.path, json=asked.body, headers=headers, timeout=_SECONDS)
        if response.headers["content-type"].startswith("text/event-stream"):
            return Answer(events=_events(response.text))
        return Answer(response.json(), response.status_code)


def _events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
