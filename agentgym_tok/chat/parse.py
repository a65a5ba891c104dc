"""Read an assistant turn from its ids: reasoning, content and tool calls, each with its place among the tokens.

The dialect is that of Hermes and Qwen: `<think>...</think>`, and JSON with `name` and `arguments` between `<tool_call>`
and `</tool_call>`.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.tokens import Ids
from agentgym_tok.types import AssistantMessage, CallStatus, ToolCall

__all__ = ["DELIMITERS", "parse_turn"]

DELIMITERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_CALL = re.compile(rb"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)


def parse_turn(
    tokenizer: Tokenizer, ids_T: Ids, stop_ids: Collection[int], tools: Sequence[Mapping[str, Any]] | None = None
) -> AssistantMessage:
    """Read a turn; any ids at all give an answer.

    Args:
        tokenizer: Knows the bytes of each id.
        ids_T: int32 [T], with or without a stop token.
        stop_ids: Ids that end a turn.
        tools: JSON schemas; calls of other names are `unknown_tool`. None knows no names.
    """
    closed = len(ids_T) > 0 and int(ids_T[-1]) in stop_ids
    body_T = ids_T[:-1] if closed else ids_T
    table = tokenizer.token_bytes
    pieces = [table[index] for index in body_T.tolist()]
    raw = b"".join(pieces)
    reasoning, start, reasoning_closed = _reasoning(raw)
    calls: list[ToolCall] = []
    content: list[bytes] = []
    if b"<tool_call>" in raw[start:]:
        ends = list(accumulate(map(len, pieces)))
        names = None if tools is None else {tool.get("function", tool).get("name") for tool in tools}
        place = start
        for match in _CALL.finditer(raw, start):
            content.append(raw[place : match.start()])
            place = match.end()
            # The tokens that hold the first and the last byte of the block.
            tokens = bisect_right(ends, match.start()), bisect_left(ends, match.end()) + 1
            calls.append(_call(match, tokens, names))
        content.append(raw[place:])
    else:
        content.append(raw[start:])
    return AssistantMessage(
        content=_text(b"".join(content)).strip(),
        reasoning=None if reasoning is None else _text(reasoning).strip(),
        tool_calls=tuple(calls),
        reasoning_closed=reasoning_closed,
        closed=closed,
    )


def _reasoning(raw: bytes) -> tuple[bytes | None, int, bool]:
    """Return the reasoning, where the rest begins, and whether the reasoning was closed."""
    opened = raw.lstrip().startswith(b"<think>")
    begin = raw.find(b"<think>") + len(b"<think>") if opened else 0
    end = raw.find(b"</think>", begin)
    if end >= 0:
        return raw[begin:end], end + len(b"</think>"), True  # without an opener: the prompt had opened it
    return (raw[begin:], len(raw), False) if opened else (None, 0, True)


def _call(match: re.Match[bytes], tokens: tuple[int, int], names: Collection[str] | None) -> ToolCall:
    raw = _text(match[1]).strip()
    name, arguments, status = _function(raw)
    if not match[2]:
        status = "unclosed"
    elif status == "ok" and names is not None and name not in names:
        status = "unknown_tool"
    return ToolCall(name=name, arguments=arguments, raw=raw, tokens=tokens, status=status)


def _function(raw: str) -> tuple[str, Mapping[str, Any] | None, CallStatus]:
    try:
        call = json.loads(raw)
    except (ValueError, RecursionError):
        return "", None, "invalid_json"
    if not isinstance(call, dict):
        return "", None, "malformed"
    name, arguments = call.get("name"), call.get("arguments", {})
    if not isinstance(name, str) or not name:
        return "", None, "missing_name"
    if not isinstance(arguments, dict):
        return name, None, "malformed"
    return name, arguments, "ok"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
