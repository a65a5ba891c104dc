"""Turns from a policy, whole or piece by piece; whoever stops listening stops the engine where it can be stopped."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Self

from agentgym_tok.policies.asker import Answer, Asker
from agentgym_tok.policies.base import BasePolicy
from agentgym_tok.types import Delta, Policy, Request

__all__ = ["Drawer"]


class Drawer:
    """Ask a policy from the server's event loop.

    A policy that streams by itself (`vllm:`, `openai:`, `llamacpp:`) is streamed from; any other one draws what waits
    as one batch in a thread, and its turns come in one piece.

    Args:
        policy: Where turns come from.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._asker = Asker(policy)
        self._streams = getattr(type(policy), "stream", None) is not BasePolicy.stream

    async def __aenter__(self) -> Self:
        await self._asker.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._asker.__aexit__(kind, error, at)

    async def ask(self, request: Request) -> Answer:
        """Return a turn, or why there is none."""
        return await self._asker.ask(request)

    async def pieces(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield a turn piece by piece; the last piece holds the whole of it.

        Raises:
            PolicyError: There is none, or it broke off.
        """
        if not self._streams:
            turn = await self.ask(request)
            if isinstance(turn, Exception):
                raise turn
            yield Delta(turn.ids_T, turn.logprobs_T, turn)
            return
        async with aclosing(self.policy.stream(request)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                yield delta
