"""Call a server that may fail: a few retries, a total deadline, and no storm of either."""

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import requests

from agentgym_tok.errors import WorldError

__all__ = ["Caller", "Passing", "read_body"]

T = TypeVar("T")

_PIECE = 1 << 16
_FAILURES, _PAUSE_S = 5, 2.0
_RETRY_SHARE, _RETRIES_SAVED = 0.25, 10.0
_LONGEST_WAIT_S = 5.0


class Passing(Exception):
    """A call failed in a way that may have passed a little later.

    Args:
        message: What was got.
        wait_s: How long the server asks to wait, in seconds.
    """

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class Caller:
    """Call one server.

    Retries wait for a random time that doubles, and never shorter than the server asks (`Retry-After`). They are at
    most a quarter of the calls once the ten that are saved up are spent, so that they add little to a server's load.
    After five calls in a row that failed, calls fail at once for two seconds; then one tries whether it is over.

    Args:
        where: The boundary and address for errors, such as `"retriever http, http://127.0.0.1:8000/retrieve"`.
        attempts: How often one call may try.
        deadline_s: How long one call may take with all its attempts and waits, in seconds.
        wait_s: The longest wait before the first retry, in seconds.
    """

    def __init__(self, where: str, *, attempts: int, deadline_s: float, wait_s: float = 0.2) -> None:
        self._where, self._attempts, self._deadline_s, self._wait_s = where, attempts, deadline_s, wait_s
        self._lock = threading.Lock()
        self._failures, self._closed_until, self._retries = 0, 0.0, _RETRIES_SAVED

    def call(self, once: Callable[[float], T]) -> T:
        """Return what a call returns.

        Args:
            once: Makes one attempt; given the time when it must be over (`time.monotonic()`).

        Raises:
            WorldError: Every attempt failed, time is up, or the server is left alone for a while.
        """
        until = time.monotonic() + self._deadline_s
        self._admit()
        for attempt in range(1, self._attempts + 1):
            try:
                result = once(until)
            except Passing as error:
                wait_s = max(error.wait_s, random.uniform(0, min(self._wait_s * 2**attempt / 2, _LONGEST_WAIT_S)))  # noqa: S311
                if attempt == self._attempts or time.monotonic() + wait_s >= until or not self._may_retry():
                    self._failed()
                    raise WorldError(
                        "the server failed",
                        where=self._where,
                        got=f"{error} (attempt {attempt})",
                        expected=f"an answer in {self._deadline_s:g} s and {self._attempts} attempts",
                        fix="look at the server; episodes that met this failed at boundary `world`",
                    ) from error
                time.sleep(wait_s)
            else:
                self._worked()
                return result
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    def _admit(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._retries = min(self._retries + _RETRY_SHARE, _RETRIES_SAVED)
            if now < self._closed_until:
                raise WorldError(
                    "the server is left alone for a while",
                    where=self._where,
                    got=f"{self._failures} calls in a row that failed",
                    fix=f"the next call in {self._closed_until - now:.1f} s tries again",
                )
            if self._failures >= _FAILURES:
                self._closed_until = now + _PAUSE_S  # for all others, while this call tries

    def _may_retry(self) -> bool:
        with self._lock:
            enough = self._retries >= 1
            self._retries -= enough
            return enough

    def _failed(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._closed_until = time.monotonic() + _PAUSE_S

    def _worked(self) -> None:
        with self._lock:
            self._failures, self._closed_until = 0, 0.0


def read_body(response: requests.Response, until: float, most_bytes: int, where: str) -> bytes:
    """Read the body of an answer, however slowly it comes, and close it.

    Args:
        response: A streamed response.
        until: When it must be there (`time.monotonic()`).
        most_bytes: How long it may be.
        where: The boundary and address for errors.

    Raises:
        Passing: The status says that it may work later, the body is cut off, or time is up.
        WorldError: The body is too long.
    """
    with response:
        if response.status_code in {408, 429} or response.status_code >= 500:
            wait = response.headers.get("Retry-After", "")
            raise Passing(f"status {response.status_code}", float(wait) if wait.isdecimal() else 0.0)
        pieces, size = [], 0
        while piece := response.raw.read1(_PIECE, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                raise WorldError("the answer is too long", where=where, got=f"over {size} bytes", expected=most_bytes)
            if time.monotonic() > until:
                raise Passing(f"{size} bytes, and no end")
        return b"".join(pieces)
