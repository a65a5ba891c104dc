"""What comes in: values that no trace can hold, bodies that never end, and clients that only look."""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from proxying import CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH
from starlette.datastructures import Headers

from agentgym_tok.proxy import Limits
from agentgym_tok.proxy.answering import Refused
from agentgym_tok.proxy.requests import read_body
from agentgym_tok.types import Request

Proxy_ = Callable[..., Any]
COUNT_PATH = "/v1/messages/count_tokens"
HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
IMPOSSIBLE = ("NaN", "-Infinity", "1e999")


def numbered(_: Request, number: int) -> str:
    return f"answer {number}"


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30])
@pytest.mark.parametrize("path", [CHAT_PATH, RESPONSES_PATH])
def test_a_seed_that_no_trace_holds_is_refused_by_name(proxied: Proxy_, path: str, seed: int) -> None:
    with proxied(numbered) as at:
        body = {"model": "m", "input": "hello"} if path == RESPONSES_PATH else HELLO
        refused = at.client.http.post(path, json={**body, "seed": seed})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "seed")
        assert at.client.http.post(path, json={**body, "seed": 2**63 - 1}).status_code == 200
        (turn,) = at.end().turns
    assert turn.seed == 2**63 - 1


@pytest.mark.parametrize("number", IMPOSSIBLE)
def test_a_number_that_is_none_is_refused_wherever_it_stands(proxied: Proxy_, number: str) -> None:
    hello, spoken = json.dumps(HELLO)[:-1], f'{{"a": [{number}]}}'
    tools = json.dumps(TOOLS).replace('"object"', spoken)
    bodies = [
        (CHAT_PATH, f'{hello}, "metadata": {spoken}}}', "metadata"),
        (CHAT_PATH, f'{hello}, "tools": {tools}}}', "tools[0].function.parameters"),
        (CHAT_PATH, f'{hello}, "unheard_of": {number}}}', "unheard_of"),
        (RESPONSES_PATH, f'{{"model": "m", "input": "hello", "metadata": {spoken}}}', "metadata"),
        (MESSAGES_PATH, f'{hello}, "max_tokens": 5, "metadata": {spoken}}}', "metadata.a"),
    ]
    with proxied(numbered) as at:
        for path, body, where in bodies:
            refused = at.client.http.post(path, content=body)
            assert refused.status_code == 400
            assert f"where: {where};" in refused.json()["error"]["message"]
        assert at.client.http.post(COUNT_PATH, content=bodies[2][1]).status_code == 400
        assert not at.policy.asked
        at.client.ask(HELLO["messages"])
        assert len(at.end().turns) == 1


@pytest.mark.parametrize("number", IMPOSSIBLE)
def test_arguments_that_hold_such_a_number_stay_text(proxied: Proxy_, number: str) -> None:
    arguments = f'{{"a": {number}}}'
    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    messages = [*HELLO["messages"], answer, {"role": "tool", "tool_call_id": "c", "content": "ok"}]
    items = [
        {"role": "user", "content": "hello"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": arguments},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
    ]
    with proxied(numbered) as at:
        at.client.ask(messages, tools=TOOLS)
        assert at.client.http.post(RESPONSES_PATH, json={"model": "m", "input": items}).status_code == 200
        turns = at.end().turns
    assert len(turns) == 2
    for turn in turns:
        (call,) = turn.messages[1].tool_calls
        assert (call.arguments, call.raw, call.status) == (None, arguments, "invalid_json")


@pytest.mark.parametrize("number", IMPOSSIBLE)
@pytest.mark.parametrize("stream", [False, True])
def test_a_policy_that_writes_such_a_number_is_gone_on_from(proxied: Proxy_, number: str, *, stream: bool) -> None:
    drawn = f'<tool_call>\n{{"name": "look", "arguments": {{"a": {number}}}}}\n</tool_call>'
    with proxied(lambda _, place: "fine" if place else drawn) as at:
        messages: list[dict[str, Any]] = [{"role": "system", "content": "one"}, *HELLO["messages"]]
        if stream:
            body = {"model": "m", "messages": messages, "tools": TOOLS, "stream": True}
            messages.append(read(at.client.http.post(CHAT_PATH, json=body).text))
        else:
            told = at.client.ask(messages, tools=TOOLS)["choices"][0]["message"]
            messages.append({name: told[name] for name in ("role", "content", "tool_calls") if told.get(name)})
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in messages[-1].get("tool_calls", ())
        ] or [{"role": "user", "content": "and?"}]
        at.client.ask(messages, tools=TOOLS)
        messages[0]["content"] = "two"  # now the call is rendered, and stands among the messages of its turn
        at.client.ask(messages, tools=TOOLS)
        turns = at.end().turns
    assert [turn.edge.kind for turn in turns[:2]] == ["fresh_prompt", "continuation"]
    assert turns[2].messages[0].content == "two"


def read(events: str) -> dict[str, Any]:
    """Return the message of a streamed answer that holds a text or one call."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for line in events.split("\n"):
        if line.startswith("data: {"):
            delta = json.loads(line[6:])["choices"][0]["delta"]
            message["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                whole = message.setdefault("tool_calls", [{**call, "function": {**call["function"], "arguments": ""}}])
                whole[0]["function"]["arguments"] += call["function"]["arguments"]
    return message


def test_who_only_looks_at_the_models_gets_no_session(proxied: Proxy_) -> None:
    with proxied(numbered, limits=Limits(sessions=2), any_key=True) as at:
        for path in ("/v1/models", "/v1/models/x"):
            for key in ("new", "newer"):
                assert httpx2.get(at.proxy.url + path, headers={"x-api-key": key}).status_code == 200
            assert httpx2.get(at.proxy.url + path).status_code == 401
        assert at.client.http.get("/health").json()["sessions"] == 1


def test_who_counts_where_there_is_no_room_is_told_to_come_back(proxied: Proxy_) -> None:
    with proxied(numbered, limits=Limits(sessions=1), any_key=True) as at:
        refused = httpx2.post(at.proxy.url + COUNT_PATH, headers={"x-api-key": "new"}, json=HELLO)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert httpx2.get(at.proxy.url + "/v1/models", headers={"x-api-key": "new"}).status_code == 200
        assert at.client.http.post(COUNT_PATH, json=HELLO).status_code == 200


@pytest.mark.parametrize("path", [COUNT_PATH, CHAT_PATH])
def test_a_body_that_never_ends_is_given_up(proxied: Proxy_, path: str) -> None:
    with (
        proxied(numbered, limits=Limits(body_s=0.1)) as at,
        socket.create_connection(("localhost", int(at.proxy.url.rsplit(":", 1)[1]))) as slow,
    ):
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {at.session.key}\r\n"
        slow.sendall(f"{head}content-length: 1000\r\n\r\n{{".encode())
        slow.settimeout(20)
        answer = b""
        while piece := slow.recv(1 << 16):  # until the proxy hangs up
            answer += piece
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"a body may take 0.1 s" in answer
        assert at.client.http.post(COUNT_PATH, json=HELLO).status_code == 200


def test_a_body_that_comes_in_time_is_read_whole() -> None:
    pieces = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}]

    async def receive() -> Any:
        return pieces.pop(0) if pieces else await asyncio.sleep(60)

    assert asyncio.run(read_body(Headers(), receive, 10, 60)) == b"ab"
    with pytest.raises(Refused, match=r"may take 0\.05 s") as refused:
        asyncio.run(read_body(Headers(), receive, 10, 0.05))
    assert refused.value.status == 408
