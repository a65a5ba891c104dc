"""One engine behind HTTP: pooled connections, bounded concurrency, deadlines, a budget of retries (extra `engines`)."""

import asyncio
import contextlib
import email.utils
import functools
import os
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from agentgym_tok.errors import ConfigError, MissingExtra
from agentgym_tok.policies.http.failures import Garbled, Refused, Transient
from agentgym_tok.policies.http.json_bytes import json_bytes, read_json
from agentgym_tok.policies.http.loop_thread import LoopThread
from agentgym_tok.policies.http.retry_budget import RetryBudget

try:
    # aiohttp, since a proxy asks hundreds of times a second, and httpx's pool looks at every idle connection each time.
    import aiohttp
    import yarl
except ImportError as error:
    raise MissingExtra(
        "engines behind HTTP need aiohttp", where="policies", fix='pip install "agentgym-tok[engines]"'
    ) from error

__all__ = ["API_KEY", "HttpEngine"]

API_KEY = "AGENTGYM_TOK_API_KEY"
"""Environment variable with the key that engines are sent; it is never shown."""

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 10.0
_LINGER_S = 0.1
"""So long the end of a connection may come behind the last word of a stream."""
_IDLE_S = 3.0
"""A connection idle for longer is not used again: uvicorn, and so vLLM, closes it after 5 s, even under a request."""
_T = TypeVar("_T")


class HttpEngine:
    """Ask one server, from any thread.

    A request that got no whole answer is sent again: drawing a turn changes nothing on the server, and nobody has seen
    a turn that did not arrive. A key in the environment variable `AGENTGYM_TOK_API_KEY` is sent along.

    Args:
        url: Where the server is, such as `http://127.0.0.1:8000`; redirects are not followed.
        concurrency: Most requests in flight.
        timeout_s: Longest wait for one answer with all its retries, in seconds.
        attempts: Most attempts of one request.

    Raises:
        ConfigError: The address is none.
    """

    def __init__(self, url: str, *, concurrency: int = 64, timeout_s: float = 600.0, attempts: int = 4) -> None:
        try:
            parsed = yarl.URL(url)
            port = parsed.port
        except ValueError as error:
            raise _no_url(str(error)) from None
        if parsed.scheme not in {"http", "https"} or not parsed.host or port is None or parsed.user or parsed.password:
            raise _no_url("credentials in it" if parsed.user or parsed.password else repr(url))
        self.url = str(parsed).rstrip("/")
        self.budget = RetryBudget()
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._key = os.environ.get(API_KEY, "")
        self._concurrency = concurrency
        self._sessions: list[aiohttp.ClientSession] = []
        self._ending: set[asyncio.Future[None]] = set()
        self.loop = LoopThread(f"engine {self.url}", functools.partial(_close_all, self._sessions))

    def close(self) -> None:
        """Cancel what is in flight and close all connections."""
        self.loop.close()

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON that a path answers; without a body, that of a GET.

        Raises:
            Transient: There is no whole answer.
            Refused: The answer is no.
        """
        method = "GET" if body is None else "POST"
        data = None if body is None else json_bytes(body)
        try:
            async with self._session().request(method, self.url + path, data=data, allow_redirects=False) as response:
                content = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(path, error) from error
        self._check(path, response, content)
        return self._json(path, content)

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """Yield the JSON of each event of a stream up to its `[DONE]`.

        A connection that is closed in good order also ends it: whether all was said, the reader must see.

        Raises:
            Transient: The stream is broken.
            Refused: The answer is no.
        """
        try:
            response = await self._session().post(self.url + path, data=json_bytes(body), allow_redirects=False)
            done = False
            try:
                if response.status != 200:
                    self._check(path, response, await response.read())
                reader = _EventReader()
                while piece := await response.content.readany():
                    for data in reader.push(piece):
                        if done := data == b"[DONE]":
                            return
                        yield self._json(path, data)
            finally:
                if done:
                    self._read_out(response)
                else:
                    response.release()
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(path, error) from error

    def _read_out(self, response: aiohttp.ClientResponse) -> None:
        """Read a stream to its end, which makes its connection good for another one; nobody waits for that."""
        ending = asyncio.ensure_future(_ended(response))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _session(self) -> aiohttp.ClientSession:
        """Return the connections, which belong to the loop that first asks."""
        if not self._sessions:
            headers = {"Content-Type": "application/json"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            session = aiohttp.ClientSession(
                headers=headers,
                # Who finds no free connection waits for one, so that this bounds the requests in flight.
                connector=aiohttp.TCPConnector(limit=self._concurrency, keepalive_timeout=_IDLE_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._sessions.append(session)
        return self._sessions[0]

    async def retrying(self, attempt: Callable[[], Awaitable[_T]], deadline: float | None = None) -> _T:
        """Return what an attempt returns, and make another one where it was `Transient` and the budget allows it.

        Args:
            attempt: Makes one attempt.
            deadline: Unix time in seconds; nothing goes on after it.

        Raises:
            Transient: The deadline passed.
            PolicyError: What the last attempt raised.
        """
        start = time.time()
        end = start + self._timeout_s
        end = end if deadline is None else min(end, deadline)
        self.budget.deposit()
        if start < end:  # who comes too late must not send it on a connection that is open already
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(end - start):
                    return await self._attempted(attempt, end)
        got = "its deadline passed" if end == deadline else f"none within {self._timeout_s:g} s"
        raise Transient("the engine gave no answer in time", where=self.url, got=got)

    async def _attempted(self, attempt: Callable[[], Awaitable[_T]], end: float) -> _T:
        # By hand, since what stamina keeps of a request refers to itself, and waits for the collector.
        retries = 0
        while True:
            try:
                return await attempt()
            except Transient as error:
                late = time.time() + (error.wait_s or 0) >= end
                if retries >= self._attempts - 1 or late or not self.budget.withdraw():
                    raise
                wait_s = error.wait_s
            if wait_s is None:
                wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * (2**retries + random.random()))  # noqa: S311  # no secret
            retries += 1
            await asyncio.sleep(wait_s)

    def _check(self, path: str, response: aiohttp.ClientResponse, content: bytes) -> None:
        status = response.status
        if status == 200:
            return
        got = f"status {status}: {self._quiet(content.decode('utf-8', 'replace'))[:300]}"
        if status not in _TRANSIENT:
            raise _refused(status, where=self.url + path, got=got)
        raise _trouble(response.headers.get("retry-after"), where=self.url + path, got=got)

    def _json(self, path: str, text: str | bytes) -> Any:
        try:
            return read_json(text)
        except ValueError:
            shown = self._quiet(repr(text[:120]))
            raise Garbled("the answer is no JSON", where=self.url + path, got=shown) from None

    def _broken(self, path: str, error: Exception) -> Transient:
        got = self._quiet(f"{type(error).__name__}: {error}")
        return Transient("the connection to the engine broke", where=self.url + path, got=got)

    def _quiet(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


async def _close_all(sessions: "list[aiohttp.ClientSession]") -> None:
    for session in sessions:
        await session.close()


async def _ended(response: aiohttp.ClientResponse) -> None:
    try:
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(_LINGER_S):
                await response.content.readany()
    finally:
        response.release()


class _EventReader:
    """Read the data of server-sent events, however the stream is cut into pieces."""

    def __init__(self) -> None:
        self._held = b""
        self._lines: list[bytes] = []

    def push(self, piece: bytes) -> list[bytes]:
        """Take the next piece; returns the data of each event that it ends."""
        *whole, self._held = (self._held + piece).split(b"\n")
        events = []
        for line in whole:
            name, _, value = line.rstrip(b"\r").partition(b":")
            if name == b"data":
                self._lines.append(value.removeprefix(b" "))
            elif not name and self._lines and not line.startswith(b":"):
                events.append(b"\n".join(self._lines))
                self._lines.clear()
        return events


def _refused(status: int, *, where: str, got: str) -> Refused:
    refused = Refused("the engine refuses the request", where=where, got=got)
    refused.status = status
    return refused


def _trouble(retry_after: str | None, *, where: str, got: str) -> Transient:
    trouble = Transient("the engine failed", where=where, got=got)
    trouble.wait_s = _retry_after(retry_after)
    return trouble


def _no_url(got: str) -> ConfigError:
    return ConfigError(
        "this is no address of an engine",
        where="policy",
        got=got,
        expected="http://HOST:PORT, such as vllm:http://127.0.0.1:8000#MODEL",
        fix=f"a key goes into the environment variable {API_KEY}",
    )


def _retry_after(header: str | None) -> float | None:
    """Read seconds, or the seconds up to a date (RFC 9110, 10.2.3); None where it says neither."""
    if header is None:
        return None
    try:
        return max(0.0, float(header)) if header.strip().isdecimal() else _seconds_until(header)
    except (TypeError, ValueError):
        return None


def _seconds_until(date: str) -> float:
    return max(0.0, email.utils.parsedate_to_datetime(date).timestamp() - time.time())
