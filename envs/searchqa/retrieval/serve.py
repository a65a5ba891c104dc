"""A retrieval server for big indexes that many share: Search-R1's `/retrieve`, in either of its forms."""

import contextlib
import hmac
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from pydantic import ValidationError

from agentgym_tok.envs.searchqa.retrieval.coalesce import Coalescer, QueueFull
from agentgym_tok.envs.searchqa.retrieval.protocol import SearchRequest, answer
from agentgym_tok.envs.searchqa.retrieval.retriever import Retriever
from agentgym_tok.errors import ConfigError, MissingExtra

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtra(
        "the retrieval server needs starlette and uvicorn", where="serve", fix='pip install "agentgym-tok[serve]"'
    ) from error

__all__ = ["RetrieverServer", "make_app"]

_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
_STOP_S = 10


def make_app(
    retriever: Retriever,
    *,
    topk: int = 3,
    token: str | None = None,
    most_waiting: int = 4096,
    most_at_once: int = 256,
    most_bytes: int = 1 << 20,
) -> Starlette:
    """Make the application: `/retrieve`, `/health` and `/metrics`.

    Args:
        retriever: What searches.
        topk: Passages for each query where the request does not say.
        token: What requests must bear (`Authorization: Bearer ...`), but for `/health`; None asks for nothing.
        most_waiting: How many queries may wait; what is more gets 503 with Retry-After.
        most_at_once: How many waiting queries are searched together.
        most_bytes: How long a request may be; what is more gets 413.
    """
    coalescer = Coalescer(retriever, most_waiting=most_waiting, most_at_once=most_at_once)
    service = _Service(coalescer, retriever.name, topk, most_bytes)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with coalescer.running():
            yield

    routes = [
        Route("/retrieve", service.counted(_guarded(service.retrieve, token)), methods=["POST"]),
        Route("/health", service.health, methods=["GET"]),
        Route("/metrics", _guarded(service.metrics, token), methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


class _Service:
    """Answer requests."""

    def __init__(self, coalescer: Coalescer, name: str, topk: int, most_bytes: int) -> None:
        self._coalescer, self._name, self._topk, self._most_bytes = coalescer, name, topk, most_bytes

    async def retrieve(self, request: Request) -> Response:
        body = await _body(request, self._most_bytes)
        if body is None:
            return _said(413, f"a request may have {self._most_bytes} bytes")
        try:
            asked = SearchRequest.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            return _said(422, ": ".join([*map(str, first["loc"]), first["msg"]]))
        try:
            found = await self._coalescer.search(asked.asked, asked.topk or self._topk)
        except QueueFull:
            return _said(503, "too many queries are waiting", {"Retry-After": "1"})
        except Exception as error:  # noqa: BLE001  one failed search does not end the server
            return _said(500, f"the search failed: {type(error).__name__}")
        return _json(200, answer(found, scores=asked.return_scores))

    async def health(self, _request: Request) -> Response:
        return _json(200, {"status": "ok", "retriever": self._name})

    async def metrics(self, _request: Request) -> Response:
        return PlainTextResponse("".join(f"{line}\n" for line in self._coalescer.counters.lines()))

    def counted(self, endpoint: _Endpoint) -> _Endpoint:
        requests = self._coalescer.counters.requests

        async def count(request: Request) -> Response:
            response = await endpoint(request)
            requests[response.status_code] = requests.get(response.status_code, 0) + 1
            return response

        return count


def _guarded(endpoint: _Endpoint, token: str | None) -> _Endpoint:
    if token is None:
        return endpoint
    expected = f"Bearer {token}".encode()

    async def guard(request: Request) -> Response:
        # As it came, but for the blanks around it, which only some of uvicorn's parsers take off.
        given = request.headers.get("Authorization", "").strip(" \t").encode("latin-1")
        if not hmac.compare_digest(given, expected):
            return _said(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
        return await endpoint(request)

    return guard


async def _body(request: Request, most_bytes: int) -> bytes | None:
    """Return the body; None where it is too long, which is known before it is read whole."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most_bytes:
            return None
    return bytes(body)


def _said(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return _json(status, {"detail": message}, headers)


def _json(status: int, value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(value), status, headers, "application/json")


class RetrieverServer:
    """Serve a retriever until told to stop; requests that have come are answered first.

    Args:
        retriever: What searches; stays open.
        host: The address to listen on; others than loopback need a token.
        port: The port; 0 takes a free one.
        token: See `make_app`.
        limits: The other arguments of `make_app`.

    Raises:
        ConfigError: The address is not loopback and there is no token, or it cannot be listened on.
    """

    def __init__(
        self,
        retriever: Retriever,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        token: str | None = None,
        **limits: int,
    ) -> None:
        if not token and not _is_loopback(host):
            raise ConfigError(
                "a server that others can reach needs a token",
                where="serve-retriever",
                got=f"host {host}",
                fix="set a token, or listen on 127.0.0.1",
            )
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=2048)
        except OSError as error:
            raise ConfigError("the address is not free", where="serve-retriever", got=f"{host}, port {port}") from error
        # asyncio does it for sockets of its own making only; without it each answer waits for the client's delayed ACK.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}/retrieve"
        app = make_app(retriever, token=token or None, **limits)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_STOP_S
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until `stop`, or until SIGINT or SIGTERM where this is the main thread."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Take no more requests, answer those that have come, and let `run` return; callable from any thread."""
        self._server.should_exit = True


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
