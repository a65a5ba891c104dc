"""The list of models (`GET /v1/models`), one document for both families of clients."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from agentgym_tok.proxy.wire.reply import json_bytes

__all__ = ["model_body", "models_body"]


def models_body(names: Iterable[str], created: int) -> bytes:
    """List models; OpenAI's clients read `object` and `created`, Anthropic's `type`, `display_name` and `created_at`.

    Args:
        names: The models.
        created: Unix time in seconds.
    """
    models = [_model(name, created) for name in names]
    ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]} if models else {"first_id": None, "last_id": None}
    return json_bytes({"object": "list", "data": models, "has_more": False, **ends})


def model_body(name: str, created: int) -> bytes:
    """Describe one model.

    Args:
        name: The model.
        created: Unix time in seconds.
    """
    return json_bytes(_model(name, created))


def _model(name: str, created: int) -> dict[str, Any]:
    at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    openai = {"id": name, "object": "model", "created": created, "owned_by": "agentgym-tok"}
    return openai | {"type": "model", "display_name": name, "created_at": at, "lifecycle": "active"}
