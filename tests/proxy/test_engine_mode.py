"""`--mode engine`: the engine's own answer reaches the client unchanged, and its ids the trace."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from proxying import CHAT, CHAT_PATH, MESSAGES_PATH, Proxied, proxied, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agentgym_tok.errors import ConfigError
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.proxy import Proxy
from agentgym_tok.trace import TraceStore
from agentgym_tok.types import Message, Sampling

PIXEL = base64.b64encode(b"\x89PNG not really").decode()
SAYING = "one two three"
HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


class Renderer:
    """Render conversations as vLLM does, an image as one id, and draw the same turn each time."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.hung_up = 0
        self.tells_prompt = True
        self.pause_s = 0.0
        self.finish: str | None = "stop"
        self.says = SAYING
        routes = [
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route(CHAT_PATH, self.chat, methods=["POST"]),
        ]
        self.server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=0, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        assert until(lambda: self.server.started)
        self.url = f"http://localhost:{self.server.servers[0].sockets[0].getsockname()[1]}"

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    async def models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "tiny", "max_model_len": 4096}]})

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        stop = body["stop_token_ids"][:1]
        logprobs = {"tokens": [f"token_id:{stop[0]}"], "token_logprobs": [-0.25]}
        choice = {"index": 0, "text": "", "token_ids": stop, "prompt_token_ids": body["prompt"]}
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": 1}
        return JSONResponse({"choices": [{**choice, "finish_reason": "stop", "logprobs": logprobs}], "usage": usage})

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        messages, images = [], 0
        for message in body["messages"]:
            content = message["content"]
            if isinstance(content, list):
                images += sum(part["type"] == "image_url" for part in content)
                content = "".join(part.get("text", "") for part in content)
            messages.append({**message, "content": content})
        prompt = [7] * images + CHAT.open(messages, body.get("tools")).ids.tolist()
        ids = CHAT.encode_turn(self.says).tolist() if self.says else []
        if messages[-1]["content"] == "refuse":
            return JSONResponse({"error": {"message": "no such thing"}}, 422)
        if not body.get("stream"):
            message = {"role": "assistant", "content": SAYING, "engine_says": "as it is"}
            document = self.piece(prompt, ids, 0, len(ids), self.finish) | {"usage": self.usage(prompt, ids)}
            document["choices"][0]["message"] = message
            return JSONResponse(document)

        async def events() -> Any:
            try:
                for place in range(len(ids)):
                    finish = self.finish if place + 1 == len(ids) else None
                    document = self.piece(prompt, ids, place, place + 1, finish)
                    document["choices"][0]["delta"] = {
                        "content": CHAT.decode(np.array(ids[place : place + 1], np.int32))
                    }
                    yield f"data: {json.dumps(document)}\n\n"
                    await asyncio.sleep(self.pause_s)
                yield "data: [DONE]\n\n"
            except BaseException:
                self.hung_up += 1
                raise

        return StreamingResponse(events(), media_type="text/event-stream")

    def piece(self, prompt: list[int], ids: list[int], start: int, end: int, finish: str | None) -> dict[str, Any]:
        entries = [{"token": f"token_id:{index}", "logprob": -0.5} for index in ids[start:end]]
        choice = {"index": 0, "token_ids": ids[start:end], "logprobs": {"content": entries}, "finish_reason": finish}
        told = {"prompt_token_ids": prompt if start == 0 and self.tells_prompt else None}
        return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], **told}

    def usage(self, prompt: list[int], ids: list[int]) -> dict[str, int]:
        return {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}


@pytest.fixture
def renderer() -> Iterator[Renderer]:
    made = Renderer()
    yield made
    made.close()


@pytest.fixture
def at(renderer: Renderer, tmp_path: Path) -> Iterator[Proxied]:
    with VLLMPolicy(renderer.url, CHAT) as policy, proxied(tmp_path / "run", policy, mode="engine") as made:
        yield made


def test_the_engines_answer_is_passed_on_and_its_ids_go_on(at: Proxied, renderer: Renderer) -> None:
    messages: list[dict[str, Any]] = []
    assert at.client.say(messages, "hello")["engine_says"] == "as it is"
    answer = at.client.ask([*messages, {"role": "user", "content": "and?"}])
    assert not {"token_ids", "logprobs", "prompt_token_ids"} & {*answer, *answer["choices"][0]}
    episode = at.end()
    assert [turn.edge.kind for turn in episode.turns] == ["fresh_prompt", "continuation"]
    assert all(turn.completion.ids_exact and turn.used for turn in episode.turns)
    assert episode.turns[0].messages == (Message("user", "hello"),)
    assert episode.turns[1].messages == (Message("user", "and?"),)
    assert renderer.asked[0]["model"] == "tiny"


def test_what_the_client_asks_to_be_told_it_is_told(at: Proxied) -> None:
    asked = {"return_token_ids": True, "logprobs": True}
    answer = at.client.ask([{"role": "user", "content": "hello"}], **asked)
    assert answer["prompt_token_ids"] == CHAT.open([Message("user", "hello")]).ids.tolist()
    assert answer["choices"][0]["token_ids"] == CHAT.encode_turn(SAYING).tolist()
    assert len(answer["choices"][0]["logprobs"]["content"]) == len(answer["choices"][0]["token_ids"])


def test_streams_are_passed_on_piece_by_piece(at: Proxied) -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    with at.client.http.stream("POST", CHAT_PATH, json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    pieces = [json.loads(line) for line in lines[:-1]]
    assert SAYING in "".join(piece["choices"][0]["delta"]["content"] for piece in pieces)
    assert len(pieces) > 3
    assert all("token_ids" not in piece["choices"][0] for piece in pieces)
    (turn,) = at.end().turns
    assert turn.completion.ids_T.tolist() == CHAT.encode_turn(SAYING).tolist()
    assert turn.completion.logprobs_T is not None


def test_images_are_passed_on_kept_marked_and_never_trained(at: Proxied, renderer: Renderer) -> None:
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
    ]
    at.client.ask([{"role": "user", "content": parts}])
    assert renderer.asked[0]["messages"][0]["content"] == parts
    episode = at.end()
    (turn,) = episode.turns
    assert not turn.completion.ids_exact
    assert "images" in turn.completion.note
    assert turn.context.ids[:2].tolist() == [7, 7]
    kinds = [at.store.image(sha256) for sha256 in turn.facts["images"]]
    assert kinds == [("image/png", base64.b64decode(PIXEL)), ("text/uri-list", b"https://example.org/cat.png")]


def test_a_template_that_is_not_the_formats_is_recorded_and_not_replayed(at: Proxied, renderer: Renderer) -> None:
    render = CHAT.open
    renderer.piece = lambda prompt, *rest: Renderer.piece(renderer, [9, *prompt], *rest)  # type: ignore[method-assign]
    renderer.usage = lambda prompt, ids: Renderer.usage(renderer, [9, *prompt], ids)  # type: ignore[method-assign]
    at.client.ask([{"role": "user", "content": "hello"}])
    (turn,) = at.end().turns
    assert turn.context.ids.tolist() == [9, *render([Message("user", "hello")]).ids.tolist()]
    assert turn.messages == ()


def test_a_client_that_goes_away_stops_the_engine(at: Proxied, renderer: Renderer) -> None:
    renderer.pause_s = 0.1
    with at.client.http.stream("POST", CHAT_PATH, json={**HELLO, "stream": True}) as response:
        lines = response.iter_lines()
        read = [next(lines) for _ in range(3)]  # two pieces, and the blank line between them
    left = time.monotonic()
    assert until(lambda: renderer.hung_up, 1)
    assert time.monotonic() - left < 1
    assert until(lambda: not at.session.session.drawing)
    (turn,) = at.end().turns
    assert (turn.used, turn.completion.finish_reason) == (False, "abort")
    ids = turn.completion.ids_T.tolist()
    assert ids == CHAT.encode_turn(SAYING).tolist()[: len(ids)]
    assert len(ids) >= sum(line.startswith("data") for line in read) == 2
    assert len(ids) - 1 <= turn.facts["told_tokens"] <= len(ids)
    assert turn.completion.logprobs_T is None
    assert turn.failure is not None
    assert turn.failure.boundary == "client"


def test_a_stream_of_a_session_that_ends_says_so_and_keeps_its_ids(at: Proxied, renderer: Renderer) -> None:
    renderer.pause_s = 0.5
    with at.client.http.stream("POST", CHAT_PATH, json={**HELLO, "stream": True}) as response:
        lines = response.iter_lines()
        next(lines)
        episode = at.end(status="abandoned")
        last = [line for line in lines if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "conflict_error"
    (turn,) = episode.turns
    assert turn.completion.ids_T.tolist() == CHAT.encode_turn(SAYING).tolist()[: len(turn.completion.ids_T)]
    assert (turn.used, len(turn.completion.ids_T) > 0) == (False, True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("finish", [None, "content_filter", "repetition"])
def test_a_turn_without_an_end_that_is_known_has_failed_and_keeps_its_ids(
    at: Proxied, renderer: Renderer, finish: str | None, *, stream: bool
) -> None:
    renderer.finish = finish
    response = at.client.http.post(CHAT_PATH, json={**HELLO, "stream": stream})
    assert response.status_code == (200 if stream else 502 if finish else 503)
    assert "the engine failed" in response.text.strip().split("\n")[-1]
    assert "[DONE]" not in response.text
    (turn,) = at.end().turns
    assert turn.failure is not None
    assert turn.failure.boundary == "policy"
    assert turn.completion.ids_T.tolist() == CHAT.encode_turn(SAYING).tolist()
    assert (turn.used, turn.completion.finish_reason, turn.completion.logprobs_T) == (False, "abort", None)
    assert turn.facts["told_tokens"] == (len(turn.completion.ids_T) if stream else 0)


def test_a_stream_that_says_nothing_is_refused_and_holds_nothing_up(at: Proxied, renderer: Renderer) -> None:
    renderer.says = ""
    response = at.client.http.post(CHAT_PATH, json={**HELLO, "stream": True})
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "the answer is empty" in response.text
    assert at.end().turns == ()


def test_what_is_recorded_as_in_force_is_what_the_engine_was_sent(renderer: Renderer, tmp_path: Path) -> None:
    defaults = Sampling(temperature=0.3, top_p=0.5, top_k=7, max_tokens=50)
    own = {"temperature": 0.9, "top_k": -1, "stop": ["zzz"], "seed": 5, "max_completion_tokens": 20, "top_p": None}
    unset = dict.fromkeys(("temperature", "top_p", "top_k", "seed", "stop", "max_tokens", "max_completion_tokens"))
    with (
        VLLMPolicy(renderer.url, CHAT) as policy,
        proxied(tmp_path / "run", policy, mode="engine", sampling=defaults) as at,
    ):
        for fields in ({}, unset, own):
            at.client.ask(HELLO["messages"], **fields)
        turns = at.end().turns
    for sent, turn in zip(renderer.asked, turns, strict=True):
        recorded = turn.completion.sampling
        assert recorded is not None
        assert (sent["temperature"], sent["top_p"], sent["seed"]) == (recorded.temperature, recorded.top_p, turn.seed)
        assert (max(sent["top_k"], 0), tuple(sent["stop"])) == (recorded.top_k, recorded.stop)
        assert (sent.get("max_completion_tokens") or sent["max_tokens"]) == recorded.max_tokens
        assert (sent["min_p"], sent["repetition_penalty"], sent["frequency_penalty"]) == (0, 1, 0)
    assert [turn.completion.sampling for turn in turns[:2]] == [defaults, defaults]
    assert all(renderer.asked[2][name] == value for name, value in own.items() if value is not None)
    assert "max_tokens" not in renderer.asked[2]


def test_an_answer_longer_than_was_asked_for_has_failed_and_keeps_its_ids(renderer: Renderer, tmp_path: Path) -> None:
    with (
        VLLMPolicy(renderer.url, CHAT) as policy,
        proxied(tmp_path / "run", policy, mode="engine", sampling=Sampling(max_tokens=3)) as at,
    ):
        response = at.client.http.post(CHAT_PATH, json={**HELLO, "max_tokens": None})
        assert response.status_code == 502
        assert "more than was asked for" in response.text
        (turn,) = at.end().turns
    assert (turn.completion.finish_reason, len(turn.completion.ids_T)) == ("abort", 4)


def test_ids_that_no_vocabulary_has_are_not_kept(at: Proxied, renderer: Renderer) -> None:
    def piece(prompt: list[int], ids: list[int], start: int, *rest: Any) -> dict[str, Any]:
        document = Renderer.piece(renderer, prompt, ids, start, *rest)
        if start == 2:
            document["choices"][0]["token_ids"] = [10**9]
        return document

    renderer.piece = piece  # type: ignore[method-assign]
    assert "the engine failed" in at.client.http.post(CHAT_PATH, json={**HELLO, "stream": True}).text
    (turn,) = at.end().turns
    assert turn.completion.ids_T.tolist() == CHAT.encode_turn(SAYING).tolist()[:2]
    assert turn.failure is not None


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_is_told_once_that_a_prompt_does_not_go_on(at: Proxied, *, stream: bool) -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "one"}]
    at.client.say(messages, "hello")
    messages[0]["content"] = "two"
    body = {"model": "m", "messages": [*messages, {"role": "user", "content": "and?"}], "stream": stream}
    text = at.client.http.post(CHAT_PATH, json=body).text
    documents = [json.loads(one.removeprefix("data: ")) for one in text.split("\n") if one.startswith(("{", "data: {"))]
    assert [one.get("drift") for one in documents] == [["system_swap"], *[None] * (len(documents) - 1)]
    at.end()


def test_what_cannot_be_recorded_is_refused(at: Proxied, renderer: Renderer) -> None:
    said = {"model": "m", "messages": [{"role": "user", "content": "refuse"}]}
    refused = at.client.http.post(CHAT_PATH, json=said)
    assert refused.status_code == 422
    assert "no such thing" in refused.text
    renderer.tells_prompt = False
    silent = at.client.http.post(CHAT_PATH, json={"model": "m", "messages": [{"role": "user", "content": "hello"}]})
    assert silent.status_code == 502
    assert "does not tell its prompt" in silent.text
    assert at.client.http.post(CHAT_PATH, json={**said, "n": 2}).status_code == 400
    assert at.client.http.post(MESSAGES_PATH, json={**said, "max_tokens": 5}).status_code == 404
    assert at.end().turns == ()


def test_a_proxy_serves_in_the_loop_of_its_engines_connections_and_ends_before_it(
    renderer: Renderer, tmp_path: Path
) -> None:
    with VLLMPolicy(renderer.url, CHAT) as policy, TraceStore(tmp_path / "run", chat=CHAT) as store:
        with Proxy(policy, CHAT, store, mode="engine") as proxy:
            assert proxy._loop is policy.server.loop._loop
            proxy.open("task").end()
        with pytest.raises(ConfigError, match="does not run"):
            proxy.open("another")
        with Proxy(policy, CHAT, store, mode="engine") as proxy:  # the loop goes on
            proxy.open("a third").end()


def test_an_engine_that_tells_no_ids_is_refused(tmp_path: Path) -> None:
    with TraceStore(tmp_path / "run", chat=CHAT) as store, pytest.raises(ConfigError, match="cannot render"):
        Proxy(lambda _: [1], CHAT, store, mode="engine")
