"""Agents through the proxy in front of a real vLLM: exact, trained, and as likely in transformers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("aiohttp", reason="the extra engines is not installed")

from models import tiny_qwen3
from played import TOLERANCE
from vllm_server import Server, serving

from agentgym_tok import ChatFormat
from agentgym_tok.policies.hf import HFPolicy
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.proxy import Proxy, ProxySession
from agentgym_tok.trace import TraceStore, account, rescore, verify
from agentgym_tok.types import Sampling

pytestmark = pytest.mark.engine

CONTEXT = 32_768
TURNS = 3
LONG = "You are in a room with a drawer, a shelf and a lamp. " * 1_200
"""About half of the context."""
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("long"), CONTEXT)


@pytest.fixture(scope="module")
def long_server(vllm_environment: None, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = (f"--max-model-len={CONTEXT}", f"--max-num-batched-tokens={CONTEXT}", "--max-num-seqs=4")
    with serving(model, tmp_path_factory.mktemp("long_server") / "log", *flags) as running:
        yield running


def ask(session: ProxySession, path: str, body: dict[str, Any], *, stream: bool) -> Any:
    """Return the whole answer; of a stream, its last word on it."""
    url, headers = session.proxy.url + path, {"authorization": f"Bearer {session.key}"}
    response = requests.post(url, json={"model": "m", **body, "stream": stream}, headers=headers, timeout=120)
    assert response.status_code == 200, response.text
    if not stream:
        return response.json()
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    assert len(events) > 3
    return events


def chat_turn(session: ProxySession, messages: list[Any], *, stream: bool) -> None:
    answer = ask(
        session, "/v1/chat/completions", {"messages": messages, "tools": TOOLS, "max_tokens": 24}, stream=stream
    )
    if not stream:
        messages.append(answer["choices"][0]["message"])
        return
    deltas = [event["choices"][0]["delta"] for event in answer if event["choices"]]
    calls: dict[int, Any] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls") or ()):
        held = calls.setdefault(
            call["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        held["id"] = call.get("id") or held["id"]
        held["function"]["name"] += call["function"].get("name") or ""
        held["function"]["arguments"] += call["function"].get("arguments") or ""
    content = "".join(delta.get("content") or "" for delta in deltas)
    messages.append({"role": "assistant", "content": content, "tool_calls": list(calls.values()) or None})


def responses_turn(session: ProxySession, messages: list[Any], *, stream: bool) -> None:
    body = {"input": messages, "max_output_tokens": 24}
    answer = ask(session, "/v1/responses", body, stream=stream)
    whole = answer[-1]["response"] if stream else answer
    messages.extend(item for item in whole["output"] if item["type"] != "reasoning")


def messages_turn(session: ProxySession, messages: list[Any], *, stream: bool) -> None:
    answer = ask(session, "/v1/messages", {"messages": messages, "max_tokens": 24}, stream=stream)
    if not stream:
        messages.append(
            {"role": "assistant", "content": [one for one in answer["content"] if one["type"] != "thinking"]}
        )
        return
    text = "".join(event["delta"].get("text", "") for event in answer if event["type"] == "content_block_delta")
    messages.append({"role": "assistant", "content": text})


@pytest.mark.parametrize("turn", [chat_turn, responses_turn, messages_turn])
@pytest.mark.parametrize("stream", [False, True])
def test_three_turns_in_a_long_context_are_exact_trained_and_as_likely(
    long_server: Server, model: Path, tmp_path: Path, turn: Any, record_property: Any, *, stream: bool
) -> None:
    chat = ChatFormat.builtin()
    with (
        VLLMPolicy(long_server.url, chat) as policy,
        TraceStore(tmp_path, chat=chat) as store,
        Proxy(policy, chat, store, sampling=Sampling(max_tokens=24)) as proxy,
    ):
        with proxy.session(task="three turns", seed=1) as session:
            messages: list[Any] = [{"role": "user", "content": LONG}]
            for number in range(TURNS):
                turn(session, messages, stream=stream)
                messages.append({"role": "user", "content": f"And then? {number}"})
        episode = session.episode
    assert [one.edge.kind for one in episode.turns] == ["fresh_prompt", *["continuation"] * (TURNS - 1)]
    assert len(episode.turns[0].context) > CONTEXT // 3
    assert all(one.used and one.completion.ids_exact for one in episode.turns)
    found = verify(tmp_path, chat)
    assert found.ok, found.breaches
    sums = account([episode])
    assert sums.complete
    assert sums.trained == sums.sampled > 0
    again = rescore(tmp_path, HFPolicy(model, chat, device="cpu", version="default"), tolerance=TOLERANCE)
    assert again.ok, again.differences
    record_property("largest difference", max(one.largest_abs for one in again.judged))


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_real_engine_renders_is_what_the_format_makes(
    long_server: Server, tmp_path: Path, *, stream: bool
) -> None:
    chat = ChatFormat.builtin()
    with (
        VLLMPolicy(long_server.url, chat) as policy,
        TraceStore(tmp_path, chat=chat) as store,
        Proxy(policy, chat, store, mode="engine", sampling=Sampling(max_tokens=24)) as proxy,
    ):
        with proxy.session(task="engine") as session:
            messages = [{"role": "user", "content": "You are in a room."}]
            body = {"messages": messages, "max_tokens": 24, "temperature": 1.0, "seed": 3}
            ask(session, "/v1/chat/completions", body, stream=stream)
        episode = session.episode
    (turn,) = episode.turns
    assert turn.completion.ids_exact, turn.completion.note
    assert turn.completion.logprobs == "raw"
    assert turn.messages
    found = verify(tmp_path, chat)
    assert (found.breaches, found.replayed) == ((), 1)
