"""The endpoints that draw turns: who asks, how much, and what it is told, down to the client that goes away."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from agentgym_tok.errors import AgentGymTokError, ChatError, ResetNeeded
from agentgym_tok.proxy.answering import GAVE_UP, SHUT_DOWN, Exchanging, Mode, Refused
from agentgym_tok.proxy.attempts import Delivery
from agentgym_tok.proxy.drafts import Evidence
from agentgym_tok.proxy.journal import Journal
from agentgym_tok.proxy.limits import Limits
from agentgym_tok.proxy.metrics import Metrics
from agentgym_tok.proxy.requests import evidence_of, headers_of, key_of, read_body
from agentgym_tok.proxy.session import Session
from agentgym_tok.proxy.sessions import Sessions, TooMany
from agentgym_tok.proxy.wire import WIRES, Ask, BadAsk, Wire
from agentgym_tok.trace import Failure

__all__ = ["Turns"]

_LOG = logging.getLogger(__name__)
_PING_S = 10.0
_LEFT = Failure("client", "Disconnected", "the client went away")
_STALLED = Failure("client", "Stalled", "the client took nothing of its stream")
_JSON = [(b"content-type", b"application/json")]
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Turns:
    """Answer requests for turns.

    Args:
        sessions: Who may ask.
        mode: Who makes contexts, and where turns come from.
        journal: Writes the trace.
        metrics: Counts.
        limits: How much is taken on.
    """

    def __init__(
        self,
        sessions: Sessions,
        mode: Mode,
        journal: Journal,
        metrics: Metrics,
        limits: Limits,
    ) -> None:
        self.sessions, self.mode = sessions, mode
        self.journal, self.metrics, self.limits = journal, metrics, limits
        self.in_flight = 0
        """Requests that are being answered."""
        self.draining = False
        """No more requests are taken."""

    def endpoint(self, path: str) -> "_Endpoint":
        """Return the ASGI application of a protocol's path."""
        return _Endpoint(self, path, WIRES[path])


class _Endpoint:
    """Answer one protocol's requests."""

    def __init__(self, turns: Turns, path: str, wire: Wire) -> None:
        self._turns, self._path, self._wire = turns, path, wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turns, answer = self._turns, _Response(send)
        turns.in_flight += 1
        try:
            await self._answer(headers_of(scope["headers"]), receive, answer)
        except Refused as refused:
            await self._refuse(answer, refused)
        except Exception:  # noqa: BLE001  # one request that fails is not the end of the others
            _LOG.exception("a request to %s failed in the proxy itself", self._path)
            await self._refuse(answer, Refused(500, "the proxy failed; its log says why"))
        finally:
            turns.in_flight -= 1
            turns.metrics.count("requests", self._path, str(answer.status))

    def _begin(self, session: Session, body: bytes, evidence: Evidence) -> Exchanging:
        """Return what answers a request.

        Raises:
            Refused: Nothing can.
        """
        turns = self._turns
        try:
            ask = self._wire.parse(body)
            _check_choices(ask, turns.limits)
            return turns.mode.begin(session, ask, evidence, body, self._wire)
        except BadAsk as error:
            raise _Wrong(str(error), str(error.where)) from error
        except ChatError as error:
            raise _Wrong(f"the chat template refuses the conversation: {error}", "messages") from error
        except ResetNeeded as error:
            raise Refused(409, str(error)) from error
        except AgentGymTokError as error:
            raise Refused(500, str(error)) from error

    async def _answer(self, headers: Mapping[str, str], receive: Receive, answer: "_Response") -> None:
        turns = self._turns
        if turns.draining:
            raise Refused(503, "the proxy is going down", again=True)
        if turns.in_flight > turns.limits.in_flight:
            turns.metrics.count("refused", "in_flight")
            raise Refused(429, "too many requests are being answered", again=True)
        session = self._session(headers)
        body = await read_body(headers, receive, turns.limits.body_bytes, turns.limits.body_s)
        await turns.journal.room()
        exchange = self._begin(session, body, evidence_of(self._path, headers, body))
        answer.headers = [(b"x-session-id", session.head.id.encode())]
        await self._exchange(exchange, receive, answer)

    def _session(self, headers: Mapping[str, str]) -> Session:
        try:
            session = self._turns.sessions.by_key(key_of(headers), headers.get("x-parent-session-id"))
        except TooMany as error:
            self._turns.metrics.count("refused", "sessions")
            raise Refused(429, str(error), again=True) from error
        if session is None:
            raise Refused(401, "this key opens no session")
        return session

    async def _exchange(self, exchange: Exchanging, receive: Receive, answer: "_Response") -> None:
        """Answer, unless the client goes away or the session ends first."""
        draft = exchange.draft
        work = asyncio.ensure_future(
            self._stream(exchange, answer) if draft.ask.stream else self._whole(exchange, answer)
        )
        draft.cancel = work.cancel
        gone = asyncio.ensure_future(_until_gone(receive))
        gone.add_done_callback(lambda _: draft.break_off(_LEFT))
        delivery: Delivery = "part"
        try:
            await work
            delivery = "whole" if answer.ended else "part"
        except asyncio.CancelledError:
            if not work.done():
                draft.break_off(SHUT_DOWN)
                await asyncio.wait([work])
                raise
            if draft.broken in {_LEFT, _STALLED}:
                self._turns.metrics.count("disconnects")
            else:
                await self._tell_end(exchange, answer)
        finally:
            gone.cancel()
            # An answer that failed would hold its task through this frame, and the task what failed.
            draft.cancel = _nothing
            del work
            exchange.session.drop(draft)
            exchange.delivered(delivery)
            self._turns.sessions.close(exchange.session)
            self._count(exchange)

    async def _tell_end(self, exchange: Exchanging, answer: "_Response") -> None:
        """Tell the client that there is nothing more, and why.

        Raises:
            Refused: It was told nothing yet.
        """
        broken = exchange.draft.broken
        status, message = (502, GAVE_UP.message) if broken is None else (409, broken.message)
        if not answer.status:
            raise Refused(status, message)
        await answer.piece(exchange.fail(status, message))
        await answer.end()

    async def _whole(self, exchange: Exchanging, answer: "_Response") -> None:
        body = await exchange.whole()
        await answer.whole(200, body)

    async def _stream(self, exchange: Exchanging, answer: "_Response") -> None:
        tending = asyncio.ensure_future(_tend(exchange, answer, self._turns.limits.write_s))
        try:
            await exchange.streamed(answer.piece)
            await answer.end()
        finally:
            tending.cancel()

    def _count(self, exchange: Exchanging) -> None:
        metrics, usage, draft = self._turns.metrics, exchange.usage, exchange.draft
        metrics.count("edges", draft.edge.kind)
        if draft.retry:
            metrics.count("retries", draft.retry)
        metrics.count("tokens", "context", by=usage.prompt)
        metrics.count("tokens", "turn", by=usage.completion)
        if exchange.first is not None:
            metrics.first_token.observe(exchange.first - exchange.started)

    async def _refuse(self, answer: "_Response", refused: Refused) -> None:
        if answer.status:
            await answer.end()
            return
        param = refused.param if isinstance(refused, _Wrong) else None
        again = (b"true", b"1") if refused.again else (b"false", b"")
        answer.headers.append((b"x-should-retry", again[0]))
        if refused.again:
            answer.headers.append((b"retry-after", again[1]))
        if refused.status == 408:
            answer.headers.append((b"connection", b"close"))
        if refused.status == 401:
            answer.headers.append((b"www-authenticate", b"Bearer"))
        await answer.whole(refused.status, self._wire.error_body(refused.status, refused.message, param, refused.drift))


class _Wrong(Refused):
    """Hold what is wrong with a request, and in which field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(400, message)
        self.param = param


class _Response:
    """Send an answer, whole or piece by piece."""

    def __init__(self, send: Send) -> None:
        self.status = 0
        """Of the answer; 0 until it has begun."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.ended = False
        """All of it was sent."""
        self.sent = 0.0
        """When the last piece went out, on the loop's clock."""
        self.stuck = False
        """It did not go out yet, since the client takes nothing."""
        self._send, self._time = send, asyncio.get_running_loop().time

    async def whole(self, status: int, body: bytes) -> None:
        """Send all of it."""
        await self._begin(status, [*_JSON, (b"content-length", str(len(body)).encode())])
        await self._last(body)

    async def piece(self, body: bytes) -> None:
        """Send a piece of a stream."""
        if not self.status:
            await self._begin(200, _EVENTS)
        await self._put(body, more=True)

    async def end(self) -> None:
        """End a stream."""
        await self._last(b"")

    async def _last(self, body: bytes) -> None:
        await self._put(body, more=False)
        self.ended = True

    async def _put(self, body: bytes, *, more: bool) -> None:
        self.sent, self.stuck = self._time(), True
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        self.stuck = False

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self.headers]})


def _check_choices(ask: Ask, limits: Limits) -> None:
    if ask.n > limits.choices:
        raise BadAsk("too many choices", where="n", got=ask.n, expected=f"up to {limits.choices}")


def _nothing() -> None:
    """Stop nothing any more."""


async def _until_gone(receive: Receive) -> None:
    message: dict[str, Any] = {}
    while message.get("type") != "http.disconnect":
        message = dict(await receive())


async def _tend(exchange: Exchanging, answer: _Response, write_s: float) -> None:
    """Say something where nothing was said for a while, and leave a client that takes nothing.

    Args:
        exchange: What is answered by a stream.
        answer: The stream.
        write_s: How long a piece may take to go out, in seconds.
    """
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError, RuntimeError):  # the answer has ended meanwhile
        while True:
            before = answer.sent
            await asyncio.sleep(min(_PING_S, write_s))
            quiet_s = loop.time() - answer.sent
            if answer.stuck and quiet_s >= write_s:
                exchange.draft.break_off(_STALLED)
            elif not answer.stuck and answer.sent == before and quiet_s >= _PING_S:
                try:
                    async with asyncio.timeout(write_s):
                        await exchange.keep_open(answer.piece)
                except TimeoutError:
                    exchange.draft.break_off(_STALLED)
