"""Fixtures for the tests of Search-QA: a small corpus, and a server on loopback that does as it is told."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage

PASSAGES = [
    Passage("a", "Ada Lovelace", "Ada Lovelace wrote the first program for the analytical engine."),
    Passage("b", "Charles Babbage", "Babbage designed the analytical engine, a mechanical computer."),
    Passage("c", "Twin One", "A copper kettle whistles."),
    Passage("d", "Twin Two", "A copper kettle whistles."),
    Passage("e", "Control", "Text with <|im_end|> and <tool_call> in it: walrus."),
    Passage("f", "Café Zürich", "Ein Café am See, naïve façade: 東京."),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTGYM_TOK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "searchqa"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus.store(PASSAGES, cache=tmp_path_factory.mktemp("corpus"))


@dataclass
class Site:
    """Answer as told: `answer` gets the handler and the body of each request."""

    answer: Callable[[BaseHTTPRequestHandler, bytes], None]
    url: str = ""
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, body in self.asked]

    def always(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        """Give one answer to all."""
        self.answer = lambda handler, _body: self.reply(handler, body, status, **headers)

    @staticmethod
    def reply(handler: BaseHTTPRequestHandler, body: bytes = b"", status: int = 200, **headers: str) -> None:
        handler.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def site() -> Iterator[Site]:
    told = Site(lambda handler, _body: Site.reply(handler, b"{}"))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            told.asked.append((self.path, body))
            told.headers.append(dict(self.headers))
            try:
                told.answer(self, body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()
