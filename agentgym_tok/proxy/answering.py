"""What answers a request, whoever makes its context."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from agentgym_tok.proxy.attempts import Delivery
from agentgym_tok.proxy.drafts import Draft, Evidence
from agentgym_tok.proxy.session import Session
from agentgym_tok.proxy.wire import Ask, Usage, Wire
from agentgym_tok.trace import Failure

__all__ = ["GAVE_UP", "SHUT_DOWN", "Exchanging", "Mode", "Refused", "Send", "why_broken"]

SHUT_DOWN: Final = Failure("harness", "ShutDown", "the proxy went down")
GAVE_UP: Final = Failure("policy", "Cancelled", "the policy gave its turn up")

Send: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a body; raises where the client is gone."""


class Refused(Exception):  # what a client is told, not what went wrong here
    """Hold what a client is told instead of an answer.

    Args:
        status: Of HTTP.
        message: For people.
        again: Asking again may help.
        drift: What is wrong with the engine's ids, where that is why.
    """

    def __init__(self, status: int, message: str, *, again: bool = False, drift: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status, self.message, self.again, self.drift = status, message, again, drift


class Exchanging(Protocol):
    """Answer one request."""

    session: Session
    draft: Draft
    started: float
    first: float | None

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        ...

    async def whole(self) -> bytes:
        """Draw and record the answer; returns its body, or raises `Refused`."""
        ...

    async def streamed(self, send: Send) -> None:
        """Draw, tell and record the answer; raises `Refused` where the client was told nothing yet."""
        ...

    async def keep_open(self, send: Send) -> None:
        """Tell the client that there is still somebody."""
        ...

    def fail(self, status: int, message: str) -> bytes:
        """Return what ends a stream that cannot go on."""
        ...

    def delivered(self, delivery: Delivery) -> None:
        """Note how much of the answer the client got."""
        ...


class Mode(Protocol):
    """Say who makes contexts, and where turns come from."""

    def begin(self, session: Session, ask: Ask, evidence: Evidence, body: bytes, wire: Wire) -> Exchanging:
        """Return what answers a request; raises `BadAsk` where nothing can."""
        ...


def why_broken(draft: Draft) -> Failure:
    """Say why the task that calls this stops drawing a turn in the middle.

    Args:
        draft: The turn; whoever broke it off said why.
    """
    task = asyncio.current_task()
    # Who was not told why, and was cancelled all the same, is at the end of its loop.
    by_us = task is not None and task.cancelling()
    return draft.broken or (SHUT_DOWN if by_us else GAVE_UP)
