"""An engine on loopback, and retries that do not wait."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import ChatFormat

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def stage() -> Iterator[tuple[list[Any], str]]:
    """Serve whatever application stands in a list; to start a server for each test would take longer than the tests."""
    uvicorn = pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    apps: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps[-1](scope, receive, send)

    # Named, since asyncio sends small answers at once only where it sees that it is TCP.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # who comes before the server does waits
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield apps, f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def serve(stage: tuple[list[Any], str]) -> Callable[[Any], str]:
    """Put an application on loopback; returns its address."""
    apps, url = stage

    def start(app: Any) -> str:
        apps.append(app)
        return url

    return start


@pytest.fixture
def fake(serve: Callable[[Any], str], builtin: ChatFormat) -> Any:
    from fake_vllm import FakeVLLM

    engine = FakeVLLM(builtin)
    engine.url = serve(engine.app())
    return engine


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let retries not wait."""
    monkeypatch.setattr("agentgym_tok.policies.http.engine._LONGEST_WAIT_S", 0.0)
