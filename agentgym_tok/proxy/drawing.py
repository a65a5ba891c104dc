"""Turns from a policy, whole or piece by piece; whoever stops listening stops the engine where it can be stopped."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Self

from agentgym_tok.policies.asker import Answer, Asker
from agentgym_tok.policies.base import BasePolicy, Tell, tell_all
from agentgym_tok.tokens import as_ids, as_logprobs
from agentgym_tok.types import Completion, Delta, Policy, Request

__all__ = ["Drawer"]


class _Heard:
    """Hear a turn's tokens in the policy's thread, and tell it when nobody listens any more.

    Args:
        loop: Where the pieces go; None drops them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.pieces: asyncio.Queue[Delta | None] = asyncio.Queue()
        self.count = 0
        """Tokens that were heard."""
        self.gone = False
        """Nobody listens."""
        self._loop = loop

    def take(self, _: Request, place: int, index: int, logprob: float) -> bool:
        """Take a token; false where the turn need not go on."""
        if self._loop is not None and place == self.count and not self.gone:  # not what is drawn a second time
            self.count += 1
            piece = Delta(as_ids([index]), as_logprobs([logprob], 1))
            self._loop.call_soon_threadsafe(self.pieces.put_nowait, piece)
        return not self.gone


class Drawer:
    """Ask a policy from the server's event loop.

    A policy that streams by itself (`vllm:`, `openai:`, `llamacpp:`) is streamed from. Any other one draws what waits
    as one batch in a thread; `hf:` says each token as it is drawn, and of the others a turn comes in one piece.

    Args:
        policy: Where turns come from.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._asker = Asker(policy, keeps=False)
        # Of engines behind HTTP, with no task and no queue in between.
        self._told: Callable[[Request, Tell], Awaitable[Completion]] | None = getattr(policy, "told", None)
        self._streams: bool = getattr(type(policy), "stream", None) is not BasePolicy.stream

    async def __aenter__(self) -> Self:
        await self._asker.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._asker.__aexit__(kind, error, at)

    async def ask(self, request: Request) -> Answer:
        """Return a turn, or why there is none; cancelling it breaks the turn off where the policy listens."""
        heard = _Heard()
        try:
            return await self._asker.ask(request, heard.take)
        finally:
            heard.gone = True

    async def told(self, request: Request, tell: Tell) -> Completion:
        """Return a turn, and tell it piece by piece before; what no piece told stands in the whole turn only.

        Raises:
            PolicyError: There is none, or it broke off.
        """
        if self._told is not None:
            return await self._told(request, tell)
        pieces = self.policy.stream(request) if self._streams else self._heard(request)
        return await tell_all(pieces, tell, self.policy.name)  # type: ignore[arg-type]

    async def _heard(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield what a policy says while it draws, and at its end what it did not say."""
        heard = _Heard(asyncio.get_running_loop())
        asking = asyncio.ensure_future(self._asker.ask(request, heard.take))
        asking.add_done_callback(lambda _: heard.pieces.put_nowait(None))
        try:
            while (piece := await heard.pieces.get()) is not None:
                yield piece
            turn = await asking
            if isinstance(turn, Exception):
                raise turn
            yield Delta(turn.ids_T[heard.count :], None, turn)
        finally:
            heard.gone = True
            asking.cancel()
