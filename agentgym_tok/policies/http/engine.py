"""One engine behind HTTP: pooled connections, bounded concurrency, deadlines, a budget of retries (extra `engines`)."""

import asyncio
import email.utils
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from agentgym_tok.errors import ConfigError, MissingExtra
from agentgym_tok.policies.http.failures import Garbled, Refused, Transient
from agentgym_tok.policies.http.loop_thread import LoopThread
from agentgym_tok.policies.http.retry_budget import RetryBudget

try:
    import httpx2
    import stamina
except ImportError as error:
    raise MissingExtra(
        "engines behind HTTP need httpx2 and stamina", where="policies", fix='pip install "agentgym-tok[engines]"'
    ) from error

__all__ = ["API_KEY", "HttpEngine"]

API_KEY = "AGENTGYM_TOK_API_KEY"
"""Environment variable with the key that engines are sent; it is never shown."""

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 10.0
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
            parsed = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise _no_url(str(error)) from None
        if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.userinfo:
            raise _no_url("credentials in it" if parsed.userinfo else repr(url))
        self.url = str(parsed).rstrip("/")
        self.budget = RetryBudget()
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._key = os.environ.get(API_KEY, "")
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            # Who finds no free connection waits for one, so that this bounds the requests in flight.
            limits=httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            timeout=httpx2.Timeout(None, connect=10.0),
        )
        self.loop = LoopThread(f"engine {self.url}", self._client.aclose)

    def close(self) -> None:
        """Cancel what is in flight and close all connections."""
        self.loop.close()

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON that a path answers; without a body, that of a GET.

        Raises:
            Transient: There is no whole answer.
            Refused: The answer is no.
        """
        method, url = ("GET", self.url + path) if body is None else ("POST", self.url + path)
        try:
            response = await self._client.request(method, url, json=body)
        except httpx2.HTTPError as error:
            raise self._broken(path, error) from error
        self._check(path, response)
        return self._json(path, response.content)

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """Yield the JSON of each event of a stream up to its `[DONE]`.

        A connection that is closed in good order also ends it: whether all was said, the reader must see.

        Raises:
            Transient: The stream is broken.
            Refused: The answer is no.
        """
        try:
            async with self._client.stream("POST", self.url + path, json=body) as response:
                if response.status_code != 200:
                    await response.aread()
                    self._check(path, response)
                async for event in httpx2.EventSource(response, max_event_size=None):
                    if event.data == "[DONE]":
                        return
                    yield self._json(path, event.data)
        except httpx2.HTTPError as error:
            raise self._broken(path, error) from error

    async def retrying(self, attempt: Callable[[], Awaitable[_T]], deadline: float | None = None) -> _T:
        """Return what an attempt returns, and make another one where it was `Transient` and the budget allows it.

        Args:
            attempt: Makes one attempt.
            deadline: Unix time in seconds; nothing goes on after it.

        Raises:
            Transient: The deadline passed.
            PolicyError: What the last attempt raised.
        """
        end = time.time() + self._timeout_s
        end = end if deadline is None else min(end, deadline)
        left = self._attempts - 1
        self.budget.deposit()

        def again(error: Exception) -> bool | float:
            nonlocal left
            if not isinstance(error, Transient) or left < 1 or time.time() + (error.wait_s or 0) >= end:
                return False
            left -= 1
            granted = self.budget.withdraw()
            return error.wait_s if granted and error.wait_s is not None else granted

        tries = stamina.retry_context(
            again,
            attempts=None,
            timeout=None,
            wait_initial=_FIRST_WAIT_S,
            wait_max=_LONGEST_WAIT_S,
            wait_jitter=_FIRST_WAIT_S,
        )
        try:
            async with asyncio.timeout(end - time.time()):
                async for one in tries:
                    with one:
                        return await attempt()
        except TimeoutError:
            got = "its deadline passed" if end == deadline else f"none within {self._timeout_s:g} s"
            raise Transient("the engine gave no answer in time", where=self.url, got=got) from None
        raise AssertionError("the last attempt raises")

    def _check(self, path: str, response: "httpx2.Response") -> None:
        status = response.status_code
        if status == 200:
            return
        got = f"status {status}: {self._quiet(response.text)[:300]}"
        if status not in _TRANSIENT:
            refused = Refused("the engine refuses the request", where=self.url + path, got=got)
            refused.status = status
            raise refused
        trouble = Transient("the engine failed", where=self.url + path, got=got)
        trouble.wait_s = _retry_after(response.headers.get("retry-after"))
        raise trouble

    def _json(self, path: str, text: str | bytes) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            shown = self._quiet(repr(text[:120]))
            raise Garbled("the answer is no JSON", where=self.url + path, got=shown) from None

    def _broken(self, path: str, error: Exception) -> Transient:
        got = self._quiet(f"{type(error).__name__}: {error}")
        return Transient("the connection to the engine broke", where=self.url + path, got=got)

    def _quiet(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


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
