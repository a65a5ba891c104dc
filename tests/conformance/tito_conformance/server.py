"""A small JSON server on the loopback interface, for the engine and the gateways of the suite."""

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, TypeAlias

__all__ = ["Answer", "Asked", "JsonServer"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Hold a request.

    Args:
        path: Its path.
        body: Its JSON; empty for GET.
        session: The conversation that the client names, by header or by key.
    """

    path: str
    body: dict[str, Any]
    session: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold a response: one JSON value, or the events of a stream.

    Args:
        body: The JSON.
        status: HTTP status.
        events: Where given, sent as server-sent events instead, `[DONE]` behind them.
    """

    body: Any = None
    status: int = 200
    events: Iterable[Any] | None = None

    @classmethod
    def error(cls, status: int, message: str) -> "Answer":
        """Return an error as OpenAI's API writes it."""
        return cls({"error": {"message": message, "type": "invalid_request_error", "code": status}}, status)


Handle: TypeAlias = Callable[[Asked], Answer]


class JsonServer:
    """Serve requests in threads until closed; use it as a context manager.

    Args:
        handle: Answers a request.
        port: 0 lets the system choose.

    Attributes:
        url: Where it listens.
    """

    def __init__(self, handle: Handle, port: int = 0) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(handle))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and wait for what is under way."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _handler(handle: Handle) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                body = json.loads(raw)
            except ValueError:
                self._send(Answer.error(400, "the body is no JSON"))
                return
            self._answer(body)

        def _answer(self, body: dict[str, Any]) -> None:
            key = self.headers.get("authorization", "").removeprefix("Bearer ")
            asked = Asked(self.path.partition("?")[0], body, self.headers.get("x-session-id") or key)
            try:
                answer = handle(asked)
            except Exception as error:  # noqa: BLE001  # a server answers, whatever its handler does
                answer = Answer.error(500, f"{type(error).__name__}: {error}")
            self._send(answer)

        def _send(self, answer: Answer) -> None:
            streams = answer.events is not None
            self.send_response(answer.status)
            self.send_header("content-type", "text/event-stream" if streams else "application/json")
            self.end_headers()
            for event in answer.events or ():
                self.wfile.write(b"data: " + _json(event) + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n" if streams else _json(answer.body))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the parent's signature
            """Stay silent; what matters is in the answers."""

    return Handler


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
