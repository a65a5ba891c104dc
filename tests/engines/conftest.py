"""Real engines: vLLM out of an environment of its own, and the models that it serves."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from vllm_server import CACHE, Server, serving, vllm_python

from agentgym_tok import ChatFormat

if TYPE_CHECKING:
    from agentgym_tok.policies.hf import HFPolicy
    from agentgym_tok.policies.http.vllm import VLLMPolicy

# The extras are imported late, so that the tests can skip where they are not installed.

MODELS = [pytest.param("tiny"), pytest.param("smollm2", marks=pytest.mark.deep)]
ROUTES = ("/inference/v1/generate", "/v1/completions")


@pytest.fixture(scope="session")
def vllm_environment() -> None:
    if not vllm_python().exists():
        pytest.skip(f"no vLLM at {vllm_python()}: run make vllm")


@pytest.fixture(scope="session", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model: one that CI makes, or one that only deep runs can afford."""
    from models import smollm2, tiny_qwen3

    if request.param == "tiny":
        return tiny_qwen3(tmp_path_factory.mktemp("tiny"))
    request.getfixturevalue("vllm_environment")  # its packages read the weights
    return smollm2(CACHE / "models")


@pytest.fixture(scope="session")
def chat(folder: Path) -> ChatFormat:
    """Return the model's format; the tiny one's is the builtin one, which knows nothing of its `generation_config`."""
    made = ChatFormat.from_pretrained(folder)
    builtin = ChatFormat.builtin()
    return builtin if made.vocab_size == builtin.vocab_size else made


@pytest.fixture(scope="session")
def server(vllm_environment: None, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(folder, tmp_path_factory.mktemp("server") / "log") as running:
        yield running


@pytest.fixture(scope="session")
def scorer(folder: Path, chat: ChatFormat) -> "HFPolicy":
    """Return the same weights in transformers, under the name that the server gives them."""
    from agentgym_tok.policies.hf import HFPolicy

    return HFPolicy(folder, chat, device="cpu", version="default")


@pytest.fixture(params=ROUTES)
def policy(
    request: pytest.FixtureRequest, server: Server, chat: ChatFormat, monkeypatch: pytest.MonkeyPatch
) -> "Iterator[VLLMPolicy]":
    """Return a policy of each endpoint that takes ids."""
    from agentgym_tok.policies.http import vllm

    monkeypatch.setattr(vllm, "_ROUTES", tuple(route for route in vllm._ROUTES if route.path == request.param))
    with vllm.VLLMPolicy(server.url, chat) as made:
        assert request.param in made.describe()
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name} {value:.1e} nats: {report.nodeid.rpartition('::')[2]}")
