"""The fake engine answers as vLLM does on each route, and makes the mistakes that the script asks for."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from tito_conformance.engine import FakeEngine
from tito_conformance.models import Model
from tito_conformance.replies import SENTINEL
from tito_conformance.script import Reply
from tito_conformance.server import Answer, JsonServer

CHAT = {"model": "tiny-chatml", "messages": [{"role": "user", "content": "Hi."}], "return_token_ids": True}
HEARD = Reply(("Caf", "é", ".<|im_end|>"))


@pytest.fixture
def client() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


def post(client: requests.Session, engine: FakeEngine, route: str, body: dict[str, Any]) -> dict[str, Any]:
    response = client.post(engine.url + route, json=body, timeout=60)
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


def stream(client: requests.Session, engine: FakeEngine, route: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = client.post(engine.url + route, json={**body, "stream": True}, timeout=60)
    lines = [line.removeprefix("data: ") for line in response.content.decode().split("\n") if line]
    assert lines.pop() == "[DONE]"
    return [requests.compat.json.loads(line) for line in lines]


def test_completions_sample_from_the_ids_that_were_sent(
    client: requests.Session, engine: FakeEngine, models: dict[str, Model]
) -> None:
    engine.put_on(HEARD)
    sampled = models["tiny-chatml"].sample(HEARD.pieces)
    for prompt in ([5, 6, 7], [[5, 6, 7]]):
        body = {"model": "tiny-chatml", "prompt": prompt, "return_token_ids": True, "logprobs": 0}
        choice = post(client, engine, "/v1/completions", body)["choices"][0]
        assert (choice["prompt_token_ids"], choice["token_ids"], choice["text"]) == ([5, 6, 7], sampled, "Café.")
        assert len(choice["logprobs"]["token_logprobs"]) == len(sampled)
    assert [call.sent for call in engine.calls] == [(5, 6, 7)] * 2


def test_completions_of_text_begin_with_what_the_tokenizer_adds(client: requests.Session, engine: FakeEngine) -> None:
    engine.put_on(HEARD)
    body = {"model": "tiny-llama3", "prompt": "<|begin_of_text|>Hi.", "return_token_ids": True}
    ids = post(client, engine, "/v1/completions", body)["choices"][0]["prompt_token_ids"]
    assert ids[0] == ids[1]
    assert engine.calls[-1].sent is None


def test_chat_renders_messages_and_tells_ids_where_vllm_does(
    client: requests.Session, engine: FakeEngine, models: dict[str, Model]
) -> None:
    engine.put_on(HEARD)
    model = models["tiny-chatml"]
    reply = post(client, engine, "/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 0})
    assert reply["prompt_token_ids"] == model.encode(model.render(CHAT["messages"], ()))
    assert reply["choices"][0]["token_ids"] == model.sample(HEARD.pieces)
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "Café."}
    assert len(reply["choices"][0]["logprobs"]["content"]) == len(model.sample(HEARD.pieces))
    without = post(client, engine, "/v1/chat/completions", {**CHAT, "logprobs": True})
    assert without["choices"][0]["logprobs"] is None
    named = {**CHAT, "logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}
    tokens = [
        entry["token"]
        for entry in post(client, engine, "/v1/chat/completions", named)["choices"][0]["logprobs"]["content"]
    ]
    assert tokens == [f"token_id:{index}" for index in model.sample(HEARD.pieces)]


def test_the_token_route_does_not_repeat_the_prompt(client: requests.Session, models: dict[str, Model]) -> None:
    body = {"model": "tiny-chatml", "token_ids": [5, 6], "sampling_params": {"logprobs": 1, "max_tokens": 9}}
    with FakeEngine(list(models.values()), scale_out=True) as engine:
        engine.put_on(HEARD)
        reply = post(client, engine, "/inference/v1/generate", body)
        events = stream(client, engine, "/inference/v1/generate", body)
    choice = reply["choices"][0]
    assert reply["prompt_token_ids"] is None
    assert [index for event in events for index in event["choices"][0]["token_ids"]] == choice["token_ids"]
    assert ["weight_versions" in event["choices"][0] for event in events] == [False] * (len(events) - 1) + [True]
    assert [entry["token_id"] for entry in choice["logprobs"]["content"]] == choice["token_ids"]
    assert choice["weight_versions"] == [{"version": "default", "start": 0, "end": len(choice["token_ids"])}]


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions"])
def test_streams_hold_half_characters_back_and_lose_no_id(
    route: str, client: requests.Session, engine: FakeEngine, models: dict[str, Model]
) -> None:
    reply = Reply(("Caf", b"\xc3", b"\xa9", b"\xe2", ".<|im_end|>"))
    engine.put_on(reply)
    body = {**CHAT, "prompt": [5, 6]}
    events = stream(client, engine, route, body)
    choices = [event["choices"][0] for event in events]
    texts = [choice.get("text", choice.get("delta", {}).get("content", "")) for choice in choices]
    assert "".join(texts) == "Café\ufffd."
    assert [index for choice in choices for index in choice.get("token_ids", [])] == models["tiny-chatml"].sample(
        reply.pieces
    )
    assert not any(text.startswith("\ufffd") and len(text) == 1 for text in texts)
    told = [place for place, event in enumerate(events) if "prompt_token_ids" in (event | event["choices"][0])]
    assert told == [0]


@pytest.mark.parametrize(
    ("fault", "told", "logprobs"),
    [
        ("no_ids", None, 8),
        ("prompt_tail", 10, 8),
        ("stop_id_trimmed", 7, 8),
        ("extra_logprob", 8, 9),
        ("sentinel", 8, 8),
    ],
)
def test_faults_are_made_as_written(
    fault: Any, told: int | None, logprobs: int, client: requests.Session, engine: FakeEngine
) -> None:
    engine.put_on(Reply(("The tea", " is", " H", "OT.<|im_end|>"), fault=fault))
    body = {"model": "tiny-chatml", "prompt": [5, 6, 7], "return_token_ids": True, "logprobs": 0}
    choice = post(client, engine, "/v1/completions", body)["choices"][0]
    assert (choice["token_ids"] and len(choice["token_ids"])) == told
    values = choice["logprobs"]["token_logprobs"]
    assert len(values) == logprobs
    assert (SENTINEL in values) == (fault == "sentinel")


def test_a_prompt_encoded_again_is_told(client: requests.Session, engine: FakeEngine, models: dict[str, Model]) -> None:
    engine.put_on(Reply(("Hi.",), fault="prompt_encoded_again"))
    ids = models["tiny-chatml"].sample(["H", "AVING"])
    body = {"model": "tiny-chatml", "prompt": ids, "return_token_ids": True}
    seen = post(client, engine, "/v1/completions", body)["choices"][0]["prompt_token_ids"]
    assert seen == models["tiny-chatml"].encode("HAVING") != ids
    assert engine.calls[-1].sent == tuple(ids)


def test_streams_lose_ids_only_where_the_fault_lies(
    client: requests.Session, engine: FakeEngine, models: dict[str, Model]
) -> None:
    made = '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'
    tools = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
    engine.put_on(Reply((made, "<|im_end|>"), fault="control_ids_lost"))
    sampled = models["tiny-chatml"].sample([made, "<|im_end|>"])
    whole = post(client, engine, "/v1/chat/completions", {**CHAT, "tools": tools})["choices"][0]
    assert whole["token_ids"] == sampled
    assert whole["message"]["tool_calls"][0]["function"] == {"name": "search", "arguments": "{}"}
    events = stream(client, engine, "/v1/chat/completions", {**CHAT, "tools": tools})
    ids = [index for event in events for index in event["choices"][0].get("token_ids", [])]
    assert ids == [index for index in sampled if index not in models["tiny-chatml"].control]
    assert events[-1]["choices"][0]["delta"]["tool_calls"][0]["index"] == 0


def test_stop_strings_leave_the_text_and_stay_in_the_ids(
    client: requests.Session, engine: FakeEngine, models: dict[str, Model]
) -> None:
    reply = Reply(("Action: look\nObservation:",), stop="Observation:")
    engine.put_on(reply)
    body = {"model": "tiny-chatml", "prompt": [5], "return_token_ids": True}
    choice = post(client, engine, "/v1/completions", body)["choices"][0]
    assert (choice["text"], choice["stop_reason"]) == ("Action: look\n", "Observation:")
    assert models["tiny-chatml"].spell(choice["token_ids"]).endswith(b"Observation:")
    texts = [event["choices"][0]["text"] for event in stream(client, engine, "/v1/completions", body)]
    assert "".join(texts) == "Action: look\n"


@pytest.mark.parametrize(
    ("route", "body", "status"),
    [
        ("/v1/completions", {"model": "other", "prompt": [1]}, 404),
        ("/v1/completions", {"model": "tiny-chatml", "prompt": [10**6]}, 400),
        ("/v1/nothing", {}, 404),
        ("/inference/v1/generate", {"model": "tiny-chatml", "token_ids": [5]}, 403),
        ("/v1/chat/completions", {"model": "tiny-chatml"}, 500),
    ],
)
def test_wrong_requests_are_errors(
    route: str, body: dict[str, Any], status: int, client: requests.Session, engine: FakeEngine
) -> None:
    assert client.post(engine.url + route, json=body, timeout=60).status_code == status


def test_the_rest_of_the_api_is_there(client: requests.Session, engine: FakeEngine, models: dict[str, Model]) -> None:
    listed = client.get(f"{engine.url}/v1/models", timeout=60).json()["data"]
    assert [entry["id"] for entry in listed] == list(models)
    assert client.get(f"{engine.url}/health", timeout=60).status_code == 200
    assert client.post(f"{engine.url}/v1/completions", b"{", timeout=60).status_code == 400
    model = models["tiny-llama3"]
    for body, ids in (
        ({"prompt": "Hi."}, model.encode("Hi.", special=True)),
        ({"prompt": "Hi.", "add_special_tokens": False}, model.encode("Hi.")),
        ({"messages": CHAT["messages"]}, model.encode(model.render(CHAT["messages"], ()))),  # type: ignore[arg-type]
    ):
        assert post(client, engine, "/tokenize", {"model": model.name, **body})["tokens"] == ids


def test_a_closed_server_gives_its_port_back() -> None:
    with JsonServer(lambda _: Answer({"first": True})) as first:
        port = int(first.url.rpartition(":")[2])
    with JsonServer(lambda _: Answer({"first": False}), port) as second:
        assert requests.get(second.url, timeout=60, proxies={"http": ""}).json() == {"first": False}
