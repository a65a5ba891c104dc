"""Limits, keys and failures: refused with a status that says so, recorded, and never a crash of the proxy."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from proxying import CHAT, CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH, Scripted, until

from agentgym_tok.errors import ConfigError, TransientPolicyError
from agentgym_tok.proxy import Limits, Proxy
from agentgym_tok.trace import TraceStore, verify
from agentgym_tok.types import Request

Proxy_ = Callable[..., Any]
HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
EVERYWHERE = ".".join("0000")


def numbered(_: Request, number: int) -> str:
    return f"answer {number}"


# ---- keys


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer sk-agt-wrong"}, {"authorization": "Basic x"}, {"x-api-key": "é"}]
)
@pytest.mark.parametrize("path", [CHAT_PATH, RESPONSES_PATH, MESSAGES_PATH, "/v1/messages/count_tokens", "/v1/models"])
def test_a_wrong_key_opens_nothing(proxied: Proxy_, path: str, headers: dict[str, str]) -> None:
    with proxied(numbered) as at:
        method = "GET" if path == "/v1/models" else "POST"
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        response = httpx2.request(method, at.proxy.url + path, headers=raw, json=HELLO if method == "POST" else None)
        assert response.status_code == 401
        assert "opens no session" in response.text
        assert not at.policy.asked


def test_a_key_opens_nothing_once_its_session_has_ended(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        at.client.ask(HELLO["messages"])
        at.end()
        assert at.client.http.post(CHAT_PATH, json=HELLO).status_code == 401


def test_anthropics_clients_send_their_key_in_a_header_of_their_own(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        headers = {"x-api-key": at.session.key, "anthropic-version": "2023-06-01"}
        response = httpx2.post(at.proxy.url + MESSAGES_PATH, headers=headers, json={**HELLO, "max_tokens": 9})
        assert response.status_code == 200
        wrong = httpx2.get(at.proxy.url + "/v1/models", headers={**headers, "x-api-key": "wrong"})
        assert wrong.json()["error"]["type"] == "authentication_error"


def test_any_key_opens_a_session_of_its_own_where_that_is_allowed(proxied: Proxy_) -> None:
    with proxied(numbered, any_key=True) as at:
        for name in ("alice", "bob", "alice"):
            headers = {"authorization": f"Bearer {name}", "x-parent-session-id": at.session.key}
            assert httpx2.post(at.proxy.url + CHAT_PATH, headers=headers, json=HELLO).status_code == 200
        at.client.ask(HELLO["messages"])
        episode = at.end()
    assert [len(child.turns) for child in episode.children] == [2, 1]
    assert {child.head.parent for child in episode.children} == {episode.id}


def test_others_than_loopback_need_a_key(tmp_path: Path) -> None:
    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        for options in ({}, {"admin_key": "k", "any_key": True}):
            with pytest.raises(ConfigError, match="needs keys"):
                Proxy(Scripted(numbered), CHAT, store, host=EVERYWHERE, **options)
        with Proxy(Scripted(numbered), CHAT, store, host=EVERYWHERE, admin_key="k" * 20) as proxy:
            url = f"http://localhost:{proxy.url.rsplit(':', 1)[1]}"
            assert httpx2.get(f"{url}/metrics").status_code == 401
            assert httpx2.get(f"{url}/metrics", headers={"authorization": f"Bearer {'k' * 20}"}).status_code == 200
            assert httpx2.get(f"{url}/health").status_code == 200


def test_what_is_on_no_list_of_paths_is_not_there(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        for path in (
            "/",
            "/v1",
            "/v1/completions",
            "/v1/embeddings",
            "/generate",
            "/tokenize",
            "/docs",
            "/openapi.json",
        ):
            assert at.client.http.post(path, json=HELLO).status_code == 404, path
        for path in ("/v1/chat/completions/", "/v1//chat/completions", "/v1/../admin/sessions", "/admin"):
            assert at.client.http.post(path, json=HELLO, follow_redirects=False).status_code in {404, 405, 307, 401}, (
                path
            )
        assert at.client.http.get(CHAT_PATH).status_code == 405
        assert not at.policy.asked


def test_secrets_stand_in_no_log_no_trace_and_no_answer(proxied: Proxy_, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = ["sk-agt-PLANTED1", "hf_PLANTED2", "AKIAPLANTED3", "eyJhbGciOiJPLANTED4.e30.x", "PLANTED5"]
    with proxied(numbered, admin_key="ADMIN-PLANTED6") as at:
        answers = []
        for secret in secrets:
            headers = {"authorization": f"Bearer {secret}", "x-api-key": secret, "cookie": secret}
            answers.append(httpx2.post(at.proxy.url + CHAT_PATH, headers=headers, json=HELLO).text)
        at.client.ask(HELLO["messages"])
        answers.append(at.client.http.post(CHAT_PATH, content=b"{").text)
        answers += [
            at.client.http.get("/metrics").text,
            at.client.http.get("/health").text,
            repr(at.session),
            repr(at.proxy),
        ]
        key = at.session.key
        at.end()
        at.store.close()
        files = b"".join(file.read_bytes() for file in at.store.run.rglob("*") if file.is_file())
    for place in (caplog.text, *answers, files.decode("latin-1")):
        for secret in (*secrets, key, "ADMIN-PLANTED6"):
            assert secret not in place


# ---- the admin


def test_an_admin_mints_rewards_describes_and_ends_sessions(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        admin = httpx2.Client(base_url=at.proxy.url, headers={"authorization": f"Bearer {at.proxy.admin_key}"})
        with admin:
            body = {"task": "t7", "group_id": "g", "replica": 2, "seed": 5, "metadata": {"by": "hand"}}
            made = admin.post("/admin/sessions", json=body).json()
            headers = {"authorization": f"Bearer {made['key']}"}
            asked = httpx2.post(f"{made['openai_base_url']}/chat/completions", headers=headers, json=HELLO)
            assert asked.headers["x-session-id"] == made["id"]
            where = f"/admin/sessions/{made['id']}"
            assert admin.post(f"{where}/reward", json={"reward": 0.5}).status_code == 204
            assert admin.get(where).json() == {"id": made["id"], "task": "t7", "turns": 1, "drawing": 0}
            for wrong in ({"reward": "x"}, {"reward": None}, {}, {"rewards": 1}):
                assert admin.post(f"{where}/reward", json=wrong).status_code == 400
            assert admin.post(f"{where}/end", json={"success": True}).status_code == 204
            assert admin.post(f"{where}/reward", json={"reward": 1}).status_code == 404
            assert admin.post("/admin/sessions", json={"parent": "none"}).status_code == 404
        assert at.client.http.post("/admin/sessions", json={}).status_code == 401
        at.end()
        episode = at.store.episode(made["id"])
    head = episode.head
    assert (head.task, head.group_id, head.replica, head.seed) == ("t7", "g", 2, 5)
    assert (episode.status, episode.success, episode.return_) == ("done", True, 0.5)
    assert episode.turns[0].facts["session"] == {"by": "hand"}


# ---- limits


def test_more_requests_than_are_answered_at_a_time_are_told_to_come_back(proxied: Proxy_) -> None:
    gate = threading.Event()

    def say(_: Request, __: int) -> str:
        return "here"

    class Waiting(Scripted):
        async def stream(self, request: Request) -> Any:
            while not gate.is_set():
                await _nap()
            async for delta in super().stream(request):
                yield delta

    with proxied(Waiting(say), limits=Limits(in_flight=2)) as at, ThreadPoolExecutor(2) as threads:
        agents = [at.agent(at.session) for _ in range(2)]
        asked = [threads.submit(agent.http.post, CHAT_PATH, json=HELLO) for agent in agents]
        assert until(lambda: at.client.http.get("/health").json()["in_flight"] == 2)
        refused = at.client.http.post(CHAT_PATH, json=HELLO)
        gate.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert [one.result().status_code for one in asked] == [200, 200]
        assert len(at.end().turns) == 2


async def _nap() -> None:
    import asyncio

    await asyncio.sleep(0.01)


def test_more_sessions_than_there_may_be_are_refused(proxied: Proxy_) -> None:
    with proxied(numbered, limits=Limits(sessions=1), any_key=True) as at:
        refused = httpx2.post(at.proxy.url + CHAT_PATH, headers={"authorization": "Bearer new"}, json=HELLO)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        with pytest.raises(ConfigError, match="too many sessions"):
            at.proxy.open("another")
        at.end()
        at.proxy.open("another").end()


def test_bodies_beyond_the_limit_are_refused_before_they_are_read_whole(proxied: Proxy_) -> None:
    with proxied(numbered, limits=Limits(body_bytes=2000)) as at:
        assert at.client.http.post(CHAT_PATH, content=b"x" * 2001).status_code == 413
        pieces = (b"x" * 1000 for _ in range(10_000))
        assert at.client.http.post(CHAT_PATH, content=pieces).status_code == 413
        assert at.client.http.post(CHAT_PATH, json=HELLO).status_code == 200


def image(url: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


MALFORMED: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"x"',
    b"1e999",
    b"{}",
    b'{"model": 1}',
    b"\xff\xfe",
    b"[" * 100_000,
]
WRONG_MESSAGES: list[Any] = [
    [],
    {},
    [1],
    [{}],
    [{"role": "user"}],
    [{"role": "king", "content": "a"}],
    [{"role": "user", "content": 1}],
    [{"role": "user", "content": [{"type": "audio"}]}],
    [{"role": "tool", "content": "a"}],
    [{"role": "assistant", "content": "a"}],
]
WRONG_FIELDS: list[dict[str, Any]] = [
    *({"n": value} for value in (0, 1000, "1")),
    *({"temperature": value} for value in (-1, "hot")),
    *({"top_p": value} for value in (0, 2)),
    *({"max_tokens": value} for value in (0, 1.5)),
    *({"stop": value} for value in ("", ["a", "b", "c", "d", "e"])),
    *({"tools": value} for value in ([{}], "x")),
    *({"tool_choice": value} for value in ("required", {"type": "x"})),
    {"stream": "yes"},
    {"response_format": {"type": "json_object"}},
    {"logit_bias": {"1": 5}},
    {"seed": "x"},
    {"top_logprobs": 99},
    *map(image, ("file:///etc/passwd", "http://metadata.internal/", "gopher://x", "data:image/png;base64,AAAA")),
]
BAD = [
    *MALFORMED,
    *(json.dumps({"model": "m", "messages": messages}).encode() for messages in WRONG_MESSAGES),
    *(json.dumps({**HELLO, **field}).encode() for field in WRONG_FIELDS),
]


def test_bad_requests_are_answered_with_what_is_wrong_and_draw_nothing(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        for path in (CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH):
            for body in BAD:
                named = body.replace(b'"messages"', b'"input"') if path == RESPONSES_PATH else body
                response = at.client.http.post(path, content=named)
                assert response.status_code in {400, 200}, (path, body[:80], response.text)
                if response.status_code == 400:
                    error = response.json()["error"]
                    assert len(error["message"]) > 10, body[:80]
                    assert "Traceback" not in response.text
        assert at.client.http.post(CHAT_PATH, json=HELLO).status_code == 200


# ---- the engine


def test_a_storm_of_failures_is_told_as_such_and_passes(proxied: Proxy_) -> None:
    until_then = time.monotonic() + 1.0

    def say(_: Request, __: int) -> str:
        if time.monotonic() < until_then:
            raise TransientPolicyError("the engine is busy", where="engine")
        return "here"

    with proxied(say) as at:
        statuses = []
        while not statuses or statuses[-1] != 200:
            response = at.client.http.post(CHAT_PATH, json=HELLO)
            statuses.append(response.status_code)
            if response.status_code != 200:
                assert (response.headers["retry-after"], response.headers["x-should-retry"]) == ("1", "true")
                time.sleep(0.05)
        assert set(statuses) == {503, 200}
        episode = at.end()
    assert len({turn.index for turn in episode.turns}) == 1
    assert [turn.used for turn in episode.turns] == [False] * (len(statuses) - 1) + [True]


def test_a_stream_that_breaks_is_ended_by_an_error_and_never_trained(proxied: Proxy_) -> None:
    class Breaking(Scripted):
        async def stream(self, request: Request) -> Any:
            place = 0
            async for delta in super().stream(request):
                place += 1
                if place == 4:
                    raise TransientPolicyError("the stream broke", where="engine")
                yield delta

    with proxied(Breaking(lambda *_: "one two three four five six")) as at:
        with at.client.http.stream("POST", CHAT_PATH, json={**HELLO, "stream": True}) as response:
            lines = [line for line in response.iter_lines() if line]
        assert "the engine failed: the stream broke" in lines[-1]
        assert "[DONE]" not in lines[-1]
        (turn,) = at.end().turns
    assert (turn.used, turn.completion.finish_reason, turn.facts["delivered"]) == (False, "abort", "part")
    assert len(turn.completion.ids_T) == 3


def test_a_policy_that_raises_anything_costs_its_request_alone(proxied: Proxy_) -> None:
    def say(_: Request, number: int) -> Any:
        if number == 0:
            raise ZeroDivisionError("oops: secret detail")
        return [10**9] if number == 1 else "fine"

    with proxied(say) as at:
        first = at.client.http.post(CHAT_PATH, json=HELLO)
        assert first.status_code == 502
        assert "secret detail" not in first.text
        assert at.client.http.post(CHAT_PATH, json=HELLO).status_code == 502
        assert at.client.http.post(CHAT_PATH, json=HELLO).status_code == 200


def test_a_client_that_takes_nothing_of_its_stream_is_left_and_its_turn_is_kept(proxied: Proxy_) -> None:
    endless = Scripted(lambda *_: CHAT.encode("one two three " * 2000).tolist())
    with proxied(endless, limits=Limits(write_s=0.3)) as at, socket.socket() as client:
        at.proxy._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # the sockets that it accepts inherit it
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(at.proxy._socket.getsockname())
        body = json.dumps({**HELLO, "stream": True, "max_tokens": 50_000}).encode()
        head = f"POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {at.session.key}\r\n"
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert until(lambda: len(at.policy.asked) == 1)
        assert until(lambda: at.client.http.get("/health").json()["in_flight"] == 0)
        (turn,) = at.end().turns
        assert (turn.failure and turn.failure.kind, turn.completion.finish_reason) == ("Stalled", "abort")
        assert 0 < turn.facts["told_tokens"] < len(turn.completion.ids_T) + 1


# ---- the store


def test_a_slow_disk_holds_requests_back_and_loses_nothing(proxied: Proxy_, monkeypatch: pytest.MonkeyPatch) -> None:
    append = TraceStore.append

    def slow(self: TraceStore, turn: Any) -> None:
        time.sleep(0.01)
        append(self, turn)

    monkeypatch.setattr(TraceStore, "append", slow)
    with proxied(numbered) as at:
        journal = at.proxy._app.journal
        journal._most_waiting = 4
        most = 0
        messages: list[dict[str, Any]] = []
        for turn in range(30):
            at.client.say(messages, f"turn {turn}")
            most = max(most, journal.waiting)
        assert most <= 5
        assert len(at.end().turns) == 30


def test_a_full_disk_fails_its_sessions_and_says_so(proxied: Proxy_, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentgym_tok.errors import TraceError

    def full(self: TraceStore, turn: Any) -> None:
        raise TraceError("the disk is full", where="run", got="ENOSPC")

    with proxied(numbered) as at:
        messages: list[dict[str, Any]] = []
        at.client.say(messages, "one")
        monkeypatch.setattr(TraceStore, "append", full)
        at.client.say(messages, "two")  # which is when the first one is written
        assert until(lambda: at.client.http.get("/health").json()["store_errors"] == 1)
        refused = at.client.http.post(CHAT_PATH, json=HELLO)
        assert (refused.status_code, "could not be written" in refused.text) == (500, True)
        assert "agentgym_tok_proxy_store_errors 1.0" in at.client.http.get("/metrics").text


# ---- the end


def test_the_end_of_a_session_ends_what_it_draws_and_its_subagents(proxied: Proxy_) -> None:
    with (
        proxied(Scripted(lambda *_: "one two three four five six", pace_s=2.0)) as at,
        ThreadPoolExecutor(16) as threads,
    ):
        sessions = [at.session]
        for depth in range(1, 5):
            sessions += [sessions[-1].child(role=f"depth {depth}")]
        sessions += [at.session.child(role=f"fan {place}") for place in range(8)]
        asking = [threads.submit(at.agent(session).http.post, CHAT_PATH, json=HELLO) for session in sessions]
        assert until(lambda: len(at.policy.asked) == len(sessions))
        start = time.monotonic()
        episode = at.end(status="abandoned")
        assert {one.result().status_code for one in asking} == {409}
        assert until(lambda: len(at.policy.broken_off) == len(sessions))
        assert max(at.policy.broken_off) - start < 2
        assert at.client.http.get("/health").json()["sessions"] == 0

    def count(one: Any) -> int:
        return 1 + sum(map(count, one.children))

    assert count(episode) == 13


SERVE = """
import sys
from agentgym_tok.cli.main import main
options = ["--policy", "python:slow_policy:policy", "--out", sys.argv[1], "--port", sys.argv[2], "--any-key"]
sys.exit(main(["proxy", *options]))
"""
SLOW_POLICY = """
import time
from agentgym_tok import ChatFormat
CHAT = ChatFormat.builtin()
def policy(ids_T):
    time.sleep(1.0)
    ids_T = CHAT.encode_turn("here")
    return ids_T, [-0.5] * len(ids_T)
"""


@contextmanager
def asked_process(folder: Path, policy: str) -> Iterator[tuple["subprocess.Popen[str]", "Future[httpx2.Response]"]]:
    """Serve in a process of its own, and have it draw an answer."""
    (folder / "slow_policy.py").write_text(policy)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, "-c", SERVE, str(folder / "run"), str(port)]
    served = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    try:
        assert f":{port}" in served.stdout.readline()
        url, headers = f"http://localhost:{port}", {"authorization": "Bearer a"}
        with ThreadPoolExecutor() as threads:
            asking = threads.submit(httpx2.post, url + CHAT_PATH, json=HELLO, headers=headers, timeout=30)
            assert until(lambda: httpx2.get(f"{url}/health").json()["in_flight"] == 1)
            yield served, asking
    finally:
        served.kill()
        served.stdout.close()
        served.wait()


def test_sigterm_lets_answers_end_writes_all_and_stops(tmp_path: Path) -> None:
    with asked_process(tmp_path, SLOW_POLICY) as (served, asking):
        served.send_signal(signal.SIGTERM)
        assert asking.result().status_code == 200
        assert served.wait(20) == 0
    found = verify(tmp_path / "run", CHAT)
    assert (found.turns, found.running, found.breaches) == (1, 0, ())
    with TraceStore(tmp_path / "run", mode="r") as store:
        (episode,) = store.episodes()
    assert (episode.status, episode.turns[0].used) == ("abandoned", True)


def test_a_second_sigint_ends_answers_too_and_what_was_drawn_is_kept(tmp_path: Path) -> None:
    with asked_process(tmp_path, SLOW_POLICY.replace("sleep(1.0)", "sleep(8.0)")) as (served, asking):
        served.send_signal(signal.SIGINT)
        time.sleep(0.5)
        served.send_signal(signal.SIGINT)
        with suppress(httpx2.HTTPError):
            assert asking.result().status_code >= 400
        assert served.wait(20) == 0
    found = verify(tmp_path / "run", CHAT)
    assert (found.turns, found.running, found.breaches) == (1, 0, ())


def test_a_client_that_reads_slowly_holds_up_nobody_else(proxied: Proxy_) -> None:
    long = CHAT.encode_turn("word after word " * 20_000).tolist()

    def say(request: Request, _: int) -> Any:
        return long if request.sampling.max_tokens > 1000 else "short"

    with proxied(say) as at, socket.create_connection(("localhost", int(at.proxy.url.rsplit(":", 1)[1]))) as slow:
        body = json.dumps({**HELLO, "stream": True, "max_tokens": 100_000}).encode()
        head = f"POST {CHAT_PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {at.session.key}\r\n"
        slow.sendall(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        assert until(lambda: at.policy.asked)
        for _ in range(5):
            assert at.client.ask([{"role": "user", "content": "quick"}], max_tokens=9)["choices"]
            time.sleep(0.05)
        pieces = []
        slow.settimeout(20)
        while piece := slow.recv(1 << 16):
            pieces.append(piece)
        assert b"".join(pieces).rstrip().endswith(b"0")  # the last chunk of a whole body
        assert b"[DONE]" in pieces[-1] + pieces[-2]
        turns = at.end().turns
    whole = [turn for turn in turns if len(turn.completion.ids_T) == len(long)]
    assert [(turn.used, turn.facts["delivered"]) for turn in whole] == [(True, "whole")]
