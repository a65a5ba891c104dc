"""The packages `openai` and `anthropic` read our answers as they are meant, and send back their echo.

`vectors/clients.json` holds what they did, by `scripts/record_clients.py`; the deep test runs them again.
"""

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.proxy.wire import WIRES
from agentgym_tok.proxy.wire.models_list import model_body, models_body

VECTORS = json.loads((Path(__file__).parent / "vectors" / "clients.json").read_text(encoding="utf-8"))
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "record_clients.py"


def name(record: Any) -> str:
    return f"{record['path']} {record['scene']} {'stream' if record['stream'] else 'whole'}"


@pytest.mark.parametrize("record", VECTORS["records"], ids=name)
def test_the_packages_read_what_an_independent_reader_reads(clients: Any, record: Any) -> None:
    read = clients[record["path"]].read(record["sent"].encode())
    calls = [
        (id_, tool, json.loads(text) if record["path"] == "/v1/messages" else text) for id_, tool, text in read.calls
    ]
    assert (read.text, read.reasoning or None, read.finish) == tuple(
        record["read"][part] for part in ("text", "reasoning", "finish")
    )
    assert calls == [tuple(call) for call in record["read"]["calls"]]


@pytest.mark.parametrize("record", VECTORS["records"], ids=name)
def test_the_packages_send_back_what_was_told(record: Any) -> None:
    ask = WIRES[record["path"]].parse(json.dumps(record["next"]).encode())
    read, found = record["read"], [message for message in ask.messages if message.role == "assistant"]
    if not found:
        assert (read["text"], read["calls"]) == ("", [])
        return
    (message,) = found
    assert (message.content, message.reasoning) == (read["text"], read["reasoning"])
    assert [[call.id, call.name] for call in message.tool_calls] == [call[:2] for call in read["calls"]]
    answers = [one for one in ask.messages if one.role == "tool"]
    assert [(one.tool_call_id, one.name) for one in answers] == [(call.id, call.name) for call in message.tool_calls]


@pytest.mark.parametrize("record", VECTORS["records"], ids=name)
def test_we_still_answer_what_the_packages_read(record: Any) -> None:
    asked = json.dumps(record["asked"]).encode()
    assert script().answer(record["path"], asked, record["scene"]).decode() == record["sent"]


def test_every_protocol_is_recorded_whole_and_in_pieces() -> None:
    assert {(record["path"], record["stream"]) for record in VECTORS["records"]} == {
        (path, stream) for path in WIRES for stream in (False, True)
    }
    assert set(VECTORS["packages"]) == {"openai", "anthropic"}


@pytest.mark.deep
def test_the_packages_still_do_what_was_recorded() -> None:
    pytest.importorskip("openai", reason="the package openai is not installed")
    pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    assert script().record() == VECTORS["records"]


@pytest.mark.deep
def test_the_packages_list_models_and_raise_errors() -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    httpx2 = pytest.importorskip("httpx2", reason="the package httpx2 is not installed")

    def serve(request: Any) -> Any:
        if request.url.path == "/v1/models":
            return httpx2.Response(200, content=models_body(["m"], 1_700_000_000))
        body = WIRES[request.url.path].error_body(429, "slowly", "model")
        return httpx2.Response(429, content=body, headers={"content-type": "application/json"})

    with httpx2.Client(transport=httpx2.MockTransport(serve)) as http:
        one = openai.OpenAI(api_key="key", base_url="http://proxy/v1", http_client=http, max_retries=0)
        other = anthropic.Anthropic(api_key="key", base_url="http://proxy", http_client=http, max_retries=0)
        assert [model.id for model in one.models.list()] == [model.id for model in other.models.list()] == ["m"]
        with pytest.raises(openai.RateLimitError) as caught:
            one.responses.create(model="m", input="Go on.")
        assert (caught.value.param, caught.value.code) == ("model", "rate_limit_exceeded")
        with pytest.raises(anthropic.RateLimitError, match="slowly"):
            other.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "Go on."}])


def test_models_are_listed_for_both_families() -> None:
    listed = json.loads(models_body(["a", "b"], 0))
    assert (listed["object"], listed["has_more"], listed["first_id"], listed["last_id"]) == ("list", False, "a", "b")
    assert listed["data"][0] == json.loads(model_body("a", 0))
    assert listed["data"][0]["created_at"] == "1970-01-01T00:00:00Z"
    assert json.loads(models_body([], 0))["data"] == []


@functools.cache
def script() -> Any:
    """Import the script that records."""
    spec = importlib.util.spec_from_file_location("record_clients", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
