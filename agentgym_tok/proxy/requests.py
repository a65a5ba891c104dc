"""Requests as they come: their keys, their bodies within bounds, and what they say of themselves."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.types import Receive

from agentgym_tok.proxy.answering import Refused
from agentgym_tok.proxy.drafts import Evidence

__all__ = ["evidence_of", "headers_of", "key_of", "read_body"]

_LONGEST_NAME = 256
_MOST_RETRIES = 1000


def headers_of(given: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by their names in lower case, as ASGI has them; of several with one name, the first."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(given)}


def key_of(headers: Mapping[str, str]) -> str:
    """Return the API key, where OpenAI's and Anthropic's clients send it; empty without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else headers.get("x-api-key", "").strip()


def evidence_of(path: str, headers: Mapping[str, str], body: bytes) -> Evidence:
    """Return what a request says of itself.

    Args:
        path: Its path; the same body means something else on another one.
        headers: `Idempotency-Key`, `X-Stainless-Retry-Count` (of the SDKs of OpenAI and Anthropic), `X-Request-Id` and
            `X-Agent-Id`.
        body: Its body.
    """
    count = headers.get("x-stainless-retry-count", "")
    return Evidence(
        hashlib.blake2b(path.encode() + b"\0" + body, digest_size=16).digest(),
        key=headers.get("idempotency-key", "")[:_LONGEST_NAME],
        retries=min(int(count), _MOST_RETRIES) if count.isascii() and count.isdigit() and len(count) < 9 else 0,
        request_id=headers.get("x-request-id", "")[:_LONGEST_NAME],
        agent=headers.get("x-agent-id", "")[:_LONGEST_NAME],
    )


async def read_body(headers: Mapping[str, str], receive: Receive, most: int, within_s: float = 60.0) -> bytes:
    """Return the body.

    Args:
        headers: Of the request.
        receive: Returns its pieces.
        most: Longest body, in bytes.
        within_s: How long it may take to come, in seconds.

    Raises:
        Refused: It is too long, which is known before it is read whole, or too slow, or the client is gone.
    """
    try:
        async with asyncio.timeout(within_s):
            return await _read_body(headers, receive, most)
    except TimeoutError:
        raise Refused(408, f"a body may take {within_s:g} s to come", again=True) from None


async def _read_body(headers: Mapping[str, str], receive: Receive, most: int) -> bytes:
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_long(most)
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message: Mapping[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the body is not whole")
        piece = message.get("body", b"")
        size, more = size + len(piece), message.get("more_body", False)
        if size > most:
            raise _too_long(most)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_long(most: int) -> Refused:
    return Refused(413, f"a body may have {most} bytes")
