"""The application: which paths there are, and what they need (extra `serve`)."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ChatError, ConfigError
from agentgym_tok.proxy.admin import admin_routes, guarded
from agentgym_tok.proxy.answering import Mode, Refused
from agentgym_tok.proxy.drawing import Drawer
from agentgym_tok.proxy.exchange import TokenMode
from agentgym_tok.proxy.journal import Journal
from agentgym_tok.proxy.limits import Limits
from agentgym_tok.proxy.memory import give_back
from agentgym_tok.proxy.metrics import Metrics  # says what is missing of the extra
from agentgym_tok.proxy.requests import key_of, read_body
from agentgym_tok.proxy.sessions import Sessions, TooMany
from agentgym_tok.proxy.turns import Turns
from agentgym_tok.proxy.wire import WIRES, BadAsk
from agentgym_tok.proxy.wire.anthropic import count_body, parse_count
from agentgym_tok.proxy.wire.models_list import model_body, models_body
from agentgym_tok.trace import TraceStore
from agentgym_tok.types import Policy, Sampling

__all__ = ["Application", "Settings"]

_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
_REAP_S = 1.0
_GIVEN_BACK = 20
"""After so many times memory is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Hold what an application is made of.

    Args:
        policy: Where turns come from.
        chat: Tokenizer and template.
        store: Where episodes go.
        source: The name that scores carry.
        admin_key: What the admin bears.
        guard_metrics: `/metrics` needs the admin's key too.
        any_key: A key that nobody minted opens a session of its own.
        sampling: Parameters where a client sets none.
        limits: How much is taken on.
        engine_renders: Contexts are the engine's, not made here.
    """

    policy: Policy
    chat: ChatFormat
    store: TraceStore
    source: str
    admin_key: str
    guard_metrics: bool
    any_key: bool
    sampling: Sampling
    limits: Limits
    engine_renders: bool = False


class Application:
    """Wire a proxy together; `asgi` serves it.

    Args:
        settings: What it is made of.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        limits = settings.limits
        self.metrics = Metrics()
        self.journal = Journal(settings.store.together)
        self.sessions = Sessions(
            settings.chat,
            settings.store,
            self.journal,
            source=settings.source,
            most=limits.sessions,
            idle_s=limits.idle_s,
            any_key=settings.any_key,
        )
        self.ready: Callable[[], None] = lambda: None
        """Is called once sessions can be opened."""
        self._drawer = Drawer(settings.policy)
        self.turns = Turns(self.sessions, self._mode(), self.journal, self.metrics, limits)
        # Of the others no engine tells ids.
        paths = ("/v1/chat/completions",) if settings.engine_renders else tuple(WIRES)
        self._created = int(time.time())
        metrics = guarded(self._metrics, settings.admin_key) if settings.guard_metrics else self._metrics
        self._endpoints = {path: self.turns.endpoint(path) for path in paths}
        self._others = Starlette(
            routes=[
                *(Route(path, endpoint, methods=["POST"]) for path, endpoint in self._endpoints.items()),
                Route("/v1/messages/count_tokens", self._told(self._count), methods=["POST"]),
                Route("/v1/models", self._told(self._models), methods=["GET"]),
                Route("/v1/models/{name:path}", self._told(self._model), methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/metrics", metrics, methods=["GET"]),
                *admin_routes(self.sessions, settings.admin_key),
            ],
            lifespan=self._lifespan,
        )

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request, or the life of the application."""
        # Turns go straight to their endpoint: every piece of a stream would pass Starlette's three layers.
        turn = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._endpoints.get(scope["path"]) if turn else None
        await (endpoint or self._others)(scope, receive, send)

    def _mode(self) -> Mode:
        settings = self._settings
        if not settings.engine_renders:
            return TokenMode(self._drawer, settings.chat, settings.sampling)
        from agentgym_tok.policies.http.vllm import VLLMPolicy  # noqa: PLC0415  # another extra
        from agentgym_tok.proxy.engine_mode import EngineMode  # noqa: PLC0415

        if not isinstance(settings.policy, VLLMPolicy):
            got, expected = settings.policy.name, "vllm:URL, whose answers tell ids"
            raise ConfigError(
                "this engine cannot render and be recorded", where="--mode engine", got=got, expected=expected
            )
        return EngineMode(settings.policy, settings.chat, settings.sampling, settings.store, self.journal)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self.journal, self._drawer:
            reaping = asyncio.create_task(self._reap())
            try:
                self.ready()
                yield
            finally:
                reaping.cancel()
                for session in self.sessions:
                    self.sessions.end(session, "abandoned")
                    await session.ended.wait()  # until what was broken off is recorded
                await self.journal.drain()

    async def _reap(self) -> None:
        reaped = 0
        while True:
            await asyncio.sleep(_REAP_S)
            await self.sessions.reap()
            reaped += 1
            if reaped % _GIVEN_BACK == 0:
                await asyncio.to_thread(give_back)

    def _told(self, endpoint: _Endpoint) -> _Endpoint:
        """Tell what is refused, in the shape that the client knows."""

        async def told(request: Request) -> Response:
            try:
                return await endpoint(request)
            except TooMany as error:
                self.metrics.count("refused", "sessions")
                refused = Refused(429, str(error), again=True)
            except Refused as error:
                refused = error
            spoken = "/v1/messages" if "anthropic-version" in request.headers else "/v1/chat/completions"
            body = WIRES[spoken].error_body(refused.status, refused.message, None)
            headers = {"retry-after": "1"} if refused.again else {}
            if refused.status == 408:
                headers["connection"] = "close"  # what comes of the body yet is nobody's
            return Response(body, refused.status, headers, media_type="application/json")

        return told

    async def _count(self, request: Request) -> Response:
        session = self.sessions.by_key(key_of(request.headers))
        if session is None:
            raise _no_session()
        limits = self._settings.limits
        body = await read_body(request.headers, request.receive, limits.body_bytes, limits.body_s)
        try:
            count = session.count(parse_count(body))
        except (BadAsk, ChatError) as error:
            raise Refused(400, str(error)) from error
        return Response(count_body(count), media_type="application/json")

    async def _models(self, request: Request) -> Response:
        self._admit(request)
        return Response(models_body([self._settings.policy.name], self._created), media_type="application/json")

    async def _model(self, request: Request) -> Response:
        self._admit(request)
        return Response(model_body(request.path_params["name"], self._created), media_type="application/json")

    def _admit(self, request: Request) -> None:
        """Let those in whose key opens a session, or would open one: a client that only looks gets none.

        Raises:
            Refused: It opens none.
        """
        key = key_of(request.headers)
        if not key or not (self._settings.any_key or self.sessions.by_key(key) is not None):
            raise _no_session()

    async def _health(self, _: Request) -> Response:
        healthy = not self.turns.draining
        said = {"status": "ok" if healthy else "draining", "policy": self._settings.policy.name}
        counts = {"sessions": len(self.sessions), "in_flight": self.turns.in_flight, "unwritten": self.journal.waiting}
        return JSONResponse({**said, **counts, "store_errors": self.journal.failed}, 200 if healthy else 503)

    async def _metrics(self, _: Request) -> Response:
        self.metrics.in_flight.set(self.turns.in_flight)
        self.metrics.sessions.set(len(self.sessions))
        self.metrics.unwritten.set(self.journal.waiting)
        self.metrics.store_errors.set(self.journal.failed)
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")


def _no_session() -> Refused:
    return Refused(401, "this key opens no session")
