"""The gateway that most are: each turn it renders the whole conversation to text and lets the engine encode it."""

from collections.abc import Mapping
from typing import Any

from tito_conformance.gateways.base import Gateway, Turn, draw
from tito_conformance.messages import to_openai
from tito_conformance.models import Model
from tito_conformance.rendering import as_engines_read

__all__ = ["NaiveGateway"]


class NaiveGateway(Gateway):
    """Render, encode, sample, decode, parse; keep nothing."""

    def turn(self, session: str, body: Mapping[str, Any], model: Model) -> Turn:
        """Answer a request from its text alone."""
        prompt = model.render(as_engines_read(body["messages"]), body.get("tools") or ())
        drawn = draw(self.engine, model, prompt, body)
        read = model.chat.parse(model.chat.encode(drawn.text), body.get("tools"))
        return Turn(to_openai(read, str(len(body["messages"])), drawn.stop), drawn)
