"""`agentgym-tok trace view RUN`: a trace as one HTML file, and that file on loopback."""

import contextlib
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.worlds import chat_format, own_format
from agentgym_tok.config import Config
from agentgym_tok.drift import Drift, audit
from agentgym_tok.errors import ConfigError
from agentgym_tok.trace import TraceStore
from agentgym_tok.trace.rows import family
from agentgym_tok.trace.viewer.view import DriftMark, page_policy, write_view

__all__ = ["Options", "PageServer", "run"]

_HOST = "127.0.0.1"


class Options(Config):
    """Write a trace as one HTML file that needs no network and no tokenizer: episodes, turns, exact contexts.

    Drift marks need the run's chat format; without one the page says that nobody looked.
    """

    run: CliPositionalArg[str] = Field(description="folder of the run")
    out: str | None = Field(default=None, description="the file; view.html in the run's folder without it")
    serve: bool = Field(default=False, description="also serve the file on 127.0.0.1 until Ctrl-C")
    port: int = Field(default=0, ge=0, le=65_535, description="port to serve on; 0 takes a free one")
    chat: str | None = Field(default=None, description="chat format of the drift marks; the one the run names without")


def run(options: Options) -> int:
    """Write, perhaps serve; return 0.

    Raises:
        TraceError: There is no trace, it cannot be read, or the file cannot be written.
        FingerprintMismatch: The chat format given is another one than the run's.
        ConfigError: The port is taken.
    """
    chat = chat_format(options.chat) if options.chat is not None else own_format(options.run)
    marks = None if chat is None else _marks(chat, options.run)
    file = write_view(options.run, options.out, marks=marks)
    without = "" if marks is not None else "; no drift marks, since the run's chat format cannot be made here (--chat)"
    print(f"{file} ({file.stat().st_size / 1e6:.1f} MB){without}")
    if options.serve:
        with PageServer(file, options.port) as server:
            print(f"{server.url} until Ctrl-C")
            sys.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
    return 0


def _marks(chat: ChatFormat, run: str) -> dict[str, list[DriftMark]]:
    marks: dict[str, list[DriftMark]] = {}
    with TraceStore(run, mode="r") as store:
        for episode in store.episodes():
            marks.update({member.id: [] for member in family(episode)})
            for drift in audit(chat, episode).drifts:
                marks[drift.episode].append(_mark(drift))
    return marks


def _mark(drift: Drift) -> DriftMark:
    ids = (drift.exact_T.tolist(), drift.text_T.tolist())
    return DriftMark(drift.kind, drift.turn, drift.position, drift.count, *ids, drift.detail)


class PageServer(ThreadingHTTPServer):
    """Serve one file on loopback, and nothing else.

    Args:
        file: The page; read once.
        port: 0 takes a free one.

    Raises:
        ConfigError: The port is taken.
    """

    daemon_threads = True

    def __init__(self, file: Path, port: int = 0) -> None:
        self.page = file.read_bytes()
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            where, fix = f"{_HOST}:{port}", "take another --port, or none"
            raise ConfigError("the page cannot be served", where=where, got=error.strerror, fix=fix) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{_HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "agentgym-tok", ""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer(head=True)

    def _answer(self, *, head: bool = False) -> None:
        assert isinstance(self.server, PageServer)
        host, port = self.headers.get("Host", ""), self.server.server_port
        if host not in {f"{_HOST}:{port}", f"localhost:{port}"}:
            # Somebody else's name that leads here: its pages could read this one.
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        if self.path != "/":
            return self.send_error(HTTPStatus.NOT_FOUND)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(self.server.page)))
        self.end_headers()
        if not head:
            self.wfile.write(self.server.page)
        return None

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", f"{page_policy()}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that the base gives it
        """Keep quiet."""
