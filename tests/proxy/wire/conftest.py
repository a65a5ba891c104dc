"""Readers of answers that share nothing with what writes them, and clients that send back what they read."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


class Read(NamedTuple):
    """Hold what a client read of a turn."""

    text: str
    reasoning: str
    calls: list[tuple[str, str, str]]
    finish: str


class Client(NamedTuple):
    """Hold how a client of one protocol works.

    Args:
        ask: Makes a request; of keyword arguments it takes over fields.
        read: Reads an answer, whole or as a stream.
        again: Makes the request that goes on after an answer that was read.
    """

    path: str
    ask: Callable[..., bytes]
    read: Callable[[bytes], Read]
    again: Callable[[Read], bytes]


def events(raw: bytes) -> list[tuple[str, Any]]:
    """Read server-sent events: name and data, in order; comments are none."""
    found = []
    assert raw.endswith(b"\n\n")
    for block in raw.decode("ascii").split("\n\n")[:-1]:
        fields = [line.partition(": ")[::2] for line in block.split("\n")]
        assert all(name in {"event", "data", ""} for name, _ in fields)
        named = dict(fields)
        if "data" in named:
            data = named["data"]
            found.append((named.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found


def dump(document: Any) -> bytes:
    """Write JSON as clients do."""
    return json.dumps(document).encode()


def read_chat(raw: bytes) -> Read:
    """Read a chat completion."""
    if not raw.startswith(b"data:"):
        (choice,) = json.loads(raw)["choices"]
        message = choice["message"]
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", [])
        ]
        return Read(message["content"] or "", message.get("reasoning_content") or "", calls, choice["finish_reason"])
    text, reasoning, finish = "", "", ""
    found: dict[int, list[str]] = {}
    *chunks, done = [data for _, data in events(raw)]
    assert done == "[DONE]"
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        assert not finish
        delta, finish = choice["delta"], choice["finish_reason"] or ""
        text += delta.get("content") or ""
        reasoning += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls") or []:
            if "id" in call:
                assert call["type"] == "function"
                assert call["index"] == len(found)
                found[call["index"]] = [call["id"], call["function"]["name"], ""]
            found[call["index"]][2] += call["function"]["arguments"]
    assert finish
    return Read(text, reasoning, [(id_, name, arguments) for id_, name, arguments in found.values()], finish)


def read_responses(raw: bytes) -> Read:
    """Read a response; in a stream, what the pieces say must be what the parts and the whole say in the end."""
    if not raw.startswith(b"event:"):
        return _read_response(json.loads(raw))
    found = events(raw)
    assert [data["sequence_number"] for _, data in found] == list(range(len(found)))
    assert all(name == data["type"] for name, data in found)
    pieces: dict[int, str] = {}
    done: dict[int, Any] = {}
    for name, data in found[2:-1]:
        place = data["output_index"]
        if name == "response.output_item.added":
            assert place == len(pieces)
            pieces[place] = ""
        assert place not in done
        if name.endswith(".delta"):
            pieces[place] += data["delta"]
        if name in {"response.output_text.done", "response.reasoning_text.done"}:
            assert data["text"] == pieces[place]
        if name == "response.function_call_arguments.done":
            assert data["arguments"] == pieces[place]
        if name == "response.output_item.done":
            done[place] = data["item"]
            said = data["item"].get("arguments")
            assert pieces[place] == (data["item"]["content"][0]["text"] if said is None else said)
    assert [done[place] for place in range(len(pieces))] == found[-1][1]["response"]["output"]
    return _read_response(found[-1][1]["response"])


def _read_response(response: Any) -> Read:
    said = {"message": "", "reasoning": ""}
    calls = []
    for item in response["output"]:
        if item["type"] == "function_call":
            calls.append((item["call_id"], item["name"], item["arguments"]))
        else:
            said[item["type"]] += "".join(part["text"] for part in item["content"])
    return Read(said["message"], said["reasoning"], calls, response["status"])


def read_messages(raw: bytes) -> Read:
    """Read a message of Anthropic's."""
    if not raw.startswith(b"event:"):
        message = json.loads(raw)
        return _read_blocks(message["content"], message["stop_reason"])
    blocks: list[Any] = []
    is_open, stop = False, ""
    found = events(raw)
    assert [found[0][0], found[-2][0], found[-1][0]] == ["message_start", "message_delta", "message_stop"]
    for name, data in found:
        assert name == data["type"]
        match name:
            case "content_block_start":
                assert not is_open
                assert data["index"] == len(blocks)
                is_open = True
                blocks.append(
                    data["content_block"] | ({"json": ""} if data["content_block"]["type"] == "tool_use" else {})
                )
            case "content_block_delta":
                assert is_open
                assert data["index"] == len(blocks) - 1
                delta = data["delta"]
                field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                    delta["type"]
                )
                blocks[-1][field or "json"] += delta[field or "partial_json"]
            case "content_block_stop":
                is_open = False
            case "message_delta":
                assert not is_open
                stop = data["delta"]["stop_reason"]
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block.pop("json"))
        elif block["type"] == "thinking":
            assert block["signature"]
    return _read_blocks(blocks, stop)


def _read_blocks(blocks: list[Any], stop: str) -> Read:
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    reasoning = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
    calls = [(one["id"], one["name"], json.dumps(one["input"])) for one in blocks if one["type"] == "tool_use"]
    return Read(text, reasoning, calls, stop)


USER = {"role": "user", "content": "Go on."}


def ask_chat(**fields: Any) -> bytes:
    """Ask for a chat completion."""
    return dump({"model": "m", "messages": [USER], **fields})


def ask_responses(**fields: Any) -> bytes:
    """Ask for a response."""
    return dump({"model": "m", "input": "Go on.", **fields})


def ask_messages(**fields: Any) -> bytes:
    """Ask for a message."""
    return dump({"model": "m", "messages": [USER], "max_tokens": 64, **fields})


def chat_again(read: Read) -> bytes:
    """Go on after a chat completion, without its reasoning, as most clients do."""
    calls = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": text}} for id_, name, text in read.calls
    ]
    message = {"role": "assistant", "content": read.text or None} | ({"tool_calls": calls} if calls else {})
    return ask_chat(messages=[USER, message, USER])


def responses_again(read: Read) -> bytes:
    """Go on after a response."""
    items: list[Any] = [USER]
    if read.reasoning:
        items.append(
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": read.reasoning}]}
        )
    items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": read.text}]})
    items += [{"type": "function_call", "call_id": a, "name": b, "arguments": c} for a, b, c in read.calls]
    return ask_responses(input=[*items, USER])


def _as_javascript(text: str) -> float:
    double = float(text)
    return int(double) if double.is_integer() and abs(double) < 1e21 else double


def messages_again(read: Read) -> bytes:
    """Go on after a message of Anthropic's, numbers and names in JavaScript's way."""
    blocks: list[Any] = []
    if read.reasoning:
        blocks.append({"type": "thinking", "thinking": read.reasoning, "signature": "s"})
    if read.text:
        blocks.append({"type": "text", "text": read.text})
    for id_, name, arguments in read.calls:
        given = json.loads(arguments, parse_float=_as_javascript, parse_int=_as_javascript)
        blocks.append({"type": "tool_use", "id": id_, "name": name, "input": dict(reversed(given.items()))})
    return ask_messages(messages=[USER, {"role": "assistant", "content": blocks}, USER])


CLIENTS = {
    CHAT: Client(CHAT, ask_chat, read_chat, chat_again),
    RESPONSES: Client(RESPONSES, ask_responses, read_responses, responses_again),
    MESSAGES: Client(MESSAGES, ask_messages, read_messages, messages_again),
}


@pytest.fixture(scope="session", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Return the client of each protocol in turn."""
    return CLIENTS[request.param]


@pytest.fixture(scope="session")
def clients() -> dict[str, Client]:
    """Return the clients of all protocols."""
    return CLIENTS
