"""Server-sent events, as bytes."""

from collections.abc import Mapping
from typing import Any

from agentgym_tok.proxy.wire.reply import json_bytes

__all__ = ["COMMENT", "data", "event"]

COMMENT = b": still here\n\n"
"""What keeps a connection open and says nothing."""


def data(document: Mapping[str, Any]) -> bytes:
    """Write an event that has no name."""
    return b"data: " + json_bytes(document) + b"\n\n"


def event(document: Mapping[str, Any]) -> bytes:
    """Write an event that is named by its `type`."""
    return b"event: " + str(document["type"]).encode() + b"\n" + data(document)
