"""The doctor's examination of engines behind HTTP: what a server does behind its endpoint is found from outside."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra engines is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "doctor"))

from fake_vllm import FakeVLLM
from toy import CHAT, Reference, Toy

from agentgym_tok import Request, Sampling
from agentgym_tok.doctor import CHECKS, Finding, examine
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.tokens import as_ids


class Engine(FakeVLLM):
    """Draw from the toy model, as it is asked to."""

    def in_force(self, params: dict[str, Any]) -> dict[str, Any]:
        return params

    def read(self, prompt: list[int]) -> list[int]:
        return prompt

    def draw(self, prompt: list[int], params: dict[str, Any]) -> tuple[list[int], list[float], str]:
        params = self.in_force(params)
        values = {name: params[name] for name in ("temperature", "top_p", "max_tokens")}
        sampling = Sampling(**values, top_k=max(0, params["top_k"]), stop=tuple(params["stop"]))
        turn = Toy().answer(Request(as_ids(self.read(prompt)), sampling, seed=params["seed"]))
        assert turn.logprobs_T is not None
        return turn.ids_T.tolist(), turn.logprobs_T.tolist(), turn.finish_reason


class GenerationConfig(Engine):
    """Fill in what stands in the model's `generation_config`, as if the request had not said it."""

    def in_force(self, params: dict[str, Any]) -> dict[str, Any]:
        return params | ({"top_k": 20} if params["top_k"] == -1 else {})


class ReadsText(Engine):
    """Echo the prompt, and read its text."""

    def read(self, prompt: list[int]) -> list[int]:
        return self.chat.tokenize(self.chat.decode(as_ids(prompt))).tolist()


class Seedless(Engine):
    count = 0

    def in_force(self, params: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        return params | {"seed": self.count}


def examined(engine: FakeVLLM, serve: Callable[[Any], str]) -> dict[str, Finding]:
    engine.models = {"toy": 280}
    with VLLMPolicy(serve(engine.app()), CHAT) as policy:
        found = examine(policy, CHAT, Reference())
    assert found.requests < 400
    return {finding.name: finding for finding in found.findings}


def failures(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if finding.status == "failed"}


def test_an_engine_without_fault_passes(serve: Callable[[Any], str]) -> None:
    found = examined(Engine(CHAT), serve)
    assert {name: one.status for name, one in found.items() if one.status != "ok"}.keys() <= {"no room"}, found
    assert found.keys() == set(CHECKS)
    assert "vllm:toy at http://127.0.0.1" in found["connection"].found
    assert "context 280" in found["connection"].found
    assert "0.32.0" in found["connection"].found


@pytest.mark.parametrize(
    ("engine", "failed", "advice"),
    [
        (GenerationConfig, "temperature 1", "--generation-config vllm"),
        (ReadsText, "ids", "--enable-scale-out"),
        (Seedless, "seeds", "send it with each request"),
    ],
)
def test_what_a_server_does_in_secret_is_found(
    serve: Callable[[Any], str], engine: type[Engine], failed: str, advice: str
) -> None:
    found = examined(engine(CHAT), serve)
    assert failed in failures(found)
    assert advice in found[failed].advice


def test_a_server_that_is_no_model_is_found(serve: Callable[[Any], str]) -> None:
    assert failures(examined(FakeVLLM(CHAT), serve)) >= {"log-probabilities", "temperature 0", "temperature 1"}
