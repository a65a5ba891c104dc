"""Record what the packages `openai` and `anthropic` read and send back, for the tests that run without them.

    PYTHONPATH=. python scripts/record_clients.py        # where both packages are installed

Each record holds a turn, the bytes that we answer, what the package reads of them, and the request that it makes next
with that answer in its conversation. The packages are imported late: tests import this file without them.
"""

# ruff: noqa: PLC0415

import json
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from agentgym_tok.chat.deltas import CallArguments, CallBegun, CallEnded, ReasoningDelta, TextDelta, TurnDelta
from agentgym_tok.proxy.wire import WIRES, Choice, Opening, Reply, Usage, call_namer, wire_id
from agentgym_tok.types import FinishReason

FILE = Path(__file__).resolve().parents[1] / "tests" / "proxy" / "wire" / "vectors" / "clients.json"

SCENES: Mapping[str, tuple[list[TurnDelta], FinishReason]] = {
    "talk": ([TextDelta("It is"), TextDelta(" é\u2028🤖.")], "stop"),
    "cut": ([ReasoningDelta("So "), ReasoningDelta("far"), TextDelta("Once upon")], "length"),
    "calls": (
        [
            ReasoningDelta("Two doors."),
            TextDelta("I look."),
            CallBegun(0, "look"),
            CallArguments(0, '{"where": "no'),
            CallArguments(0, 'rth", "deep": 1.0, "lit": true}'),
            CallEnded(0, "ok"),
            CallBegun(1, "wait", "functions.wait:1"),
            CallEnded(1, "ok"),
        ],
        "stop",
    ),
    "broken": ([CallBegun(0, "look"), CallArguments(0, '{"where": nor'), CallEnded(0, "invalid_json")], "stop"),
    "unfinished": ([TextDelta("\n"), CallBegun(0, "look"), CallArguments(0, '{"where": "no')], "length"),
    "nothing": ([], "stop"),
}
"""Turns, and how they end."""

USER = {"role": "user", "content": "Go on."}
SCHEMA = {"type": "object", "properties": {"where": {"type": "string"}}}


def answer(path: str, body: bytes, scene: str) -> bytes:
    """Answer a request with the turn of a scene."""
    wire = WIRES[path]
    ask = wire.parse(body)
    deltas, finish = SCENES[scene]
    opening = Opening(
        wire_id(wire.reply_prefix, scene), 1_700_000_000, ask.model, call_namer(wire.call_prefix, scene, 0), 12, 8
    )
    usage = Usage(12, 5, cached=8, reasoning=2)
    stream = wire.stream(ask, opening)
    pieces = [stream.start()]
    for delta in deltas:
        pieces += [stream.add(delta), stream.ping()]
    pieces += [stream.close(finish), stream.end(usage)]
    if ask.stream:
        return b"".join(pieces)
    reply = Reply(opening.id, opening.created, opening.model, (Choice(stream.said(), finish),), usage)
    return wire.reply_body(reply, ask)


def record() -> list[dict[str, Any]]:
    """Let both packages read every scene, whole and in pieces."""
    records = []
    for path, client in CLIENTS.items():
        for scene in SCENES:
            for stream in (False, True):
                line = _Line(scene)
                read, again = client(line.transport(), stream)
                again()
                records.append(
                    {"path": path, "scene": scene, "stream": stream}
                    | {"asked": line.asked[0], "sent": line.first, "read": read, "next": line.asked[-1]}
                )
    return records


class _Line:
    """Stand in for a server, and keep what goes both ways."""

    def __init__(self, scene: str) -> None:
        self._scene = scene
        self.asked: list[Any] = []
        self.first = ""

    def transport(self) -> Any:
        import httpx2

        return httpx2.Client(transport=httpx2.MockTransport(self._serve))

    def _serve(self, request: Any) -> Any:
        import httpx2

        body = request.read()
        self.asked.append(json.loads(body))
        sent = answer(request.url.path, body, self._scene)
        self.first = self.first or sent.decode()
        kind = "text/event-stream" if self.asked[-1].get("stream") else "application/json"
        return httpx2.Response(200, content=sent, headers={"content-type": kind})


Client = Callable[[Any, bool], tuple[dict[str, Any], Callable[[], object]]]


def _chat(http: Any, stream: bool) -> tuple[dict[str, Any], Callable[[], object]]:
    import openai

    client = openai.OpenAI(api_key="key", base_url="http://proxy/v1", http_client=http, max_retries=0)
    tools: Any = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}]
    asked: Any = {"model": "m", "messages": [USER], "tools": tools, "temperature": 0.5, "max_completion_tokens": 64}
    if stream:
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
            for _ in events:
                pass
            choice: Any = events.current_completion_snapshot.choices[0]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
    message = choice.message
    calls = message.tool_calls or []
    read = {
        "text": message.content or "",
        "reasoning": getattr(message, "reasoning_content", None),
        "calls": [[call.id, call.function.name, call.function.arguments] for call in calls],
        "finish": choice.finish_reason,
    }
    results = [{"role": "tool", "tool_call_id": call.id, "content": "Done."} for call in calls] or [USER]
    return read, lambda: client.chat.completions.create(**asked | {"messages": [USER, message, *results]})


def _responses(http: Any, stream: bool) -> tuple[dict[str, Any], Callable[[], object]]:
    import openai

    client = openai.OpenAI(api_key="key", base_url="http://proxy/v1", http_client=http, max_retries=0)
    tools: Any = [{"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA, "strict": True}]
    asked: Any = {"model": "m", "instructions": "Be brief.", "tools": tools, "max_output_tokens": 64}
    if stream:
        *_, last = client.responses.create(**asked, input="Go on.", stream=True)
        response: Any = last.response
    else:
        response = client.responses.create(**asked, input="Go on.")
    items = response.output
    calls = [item for item in items if item.type == "function_call"]
    read = {
        "text": response.output_text,
        "reasoning": "".join(part.text for item in items if item.type == "reasoning" for part in item.content) or None,
        "calls": [[call.call_id, call.name, call.arguments] for call in calls],
        "finish": response.status,
    }
    results: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "Done."} for call in calls]
    again = [USER, *items, *(results or [USER])]
    return read, lambda: client.responses.create(**asked, input=again)


def _messages(http: Any, stream: bool) -> tuple[dict[str, Any], Callable[[], object]]:
    import anthropic

    client = anthropic.Anthropic(api_key="key", base_url="http://proxy", http_client=http, max_retries=0)
    tools: Any = [{"name": "look", "description": "Look.", "input_schema": SCHEMA}]
    asked: Any = {"model": "m", "system": "Be brief.", "messages": [USER], "tools": tools, "max_tokens": 64}
    if stream:
        with client.messages.stream(**asked) as events:
            for _ in events:
                pass
            message: Any = events.get_final_message()
    else:
        message = client.messages.create(**asked)
    calls = [block for block in message.content if block.type == "tool_use"]
    read = {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "reasoning": "".join(block.thinking for block in message.content if block.type == "thinking") or None,
        "calls": [[call.id, call.name, call.input] for call in calls],
        "finish": message.stop_reason,
    }
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "Done."} for call in calls]
    results += [{"type": "text", "text": "Go on."}]
    said = [{"role": "assistant", "content": message.content}] if message.content else []
    again = [USER, *said, {"role": "user", "content": results}]
    return read, lambda: client.messages.create(**asked | {"messages": again})


CLIENTS: Mapping[str, Client] = {
    "/v1/chat/completions": _chat,
    "/v1/responses": _responses,
    "/v1/messages": _messages,
}


def main() -> None:
    """Write the file."""
    packages = {name: metadata.version(name) for name in ("openai", "anthropic")}
    head = json.dumps({"made_by": f"scripts/{Path(__file__).name}", "packages": packages})[:-1]
    lines = ",\n".join(json.dumps(one) for one in record())
    FILE.write_text(f'{head}, "records": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
