"""Conversations as everybody stores them: one JSON object a line, in the shape of the OpenAI chat API."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym_tok.drift.change import Conversation
from agentgym_tok.errors import ChatError, DataCorrupt, DataMissing

__all__ = ["read_chats"]

_EXPECTED = '{"messages": [{"role": "user", "content": "..."}, ...], "tools": [...]}'


def read_chats(path: str | Path) -> Iterator[Conversation]:
    """Yield the conversations of a JSONL file; lines without anything are passed over.

    Args:
        path: Each line holds `{"messages": [...], "tools": [...]}`; the tools may be missing. A content in
            parts, as the API allows, is joined where all parts are text.

    Raises:
        DataMissing: The file is not there.
        DataCorrupt: A line is no conversation of texts; the error names it.
    """
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # closed below; only the opening may say that it is missing
    except OSError as error:
        raise DataMissing("the conversations cannot be read", where=path, got=error.strerror) from error
    with file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                chat = _conversation(json.loads(line))
            except (ValueError, RecursionError) as error:
                where, got = f"{path}, line {number}", str(error) or type(error).__name__
                raise DataCorrupt("no conversation", where=where, got=got, expected=_EXPECTED) from error
            yield chat


def _conversation(value: Any) -> Conversation:
    if not isinstance(value, Mapping):
        raise ChatError("no JSON object", got=type(value).__name__)
    messages, tools = value.get("messages"), value.get("tools") or []
    for name, entries in (("messages", messages), ("tools", tools)):
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise ChatError(f"{name} are no list of objects", got=type(entries).__name__)
    assert isinstance(messages, list)
    return Conversation.of([_joined(message) for message in messages], tools)


def _joined(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with its content in one piece."""
    parts = message.get("content")
    if not isinstance(parts, list):
        return message
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ChatError("a part of a content is no text", got=str(parts)[:80])
    return {**message, "content": "".join(map(str, texts))}
