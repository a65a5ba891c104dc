"""What policies behind HTTP share: batches that run at once, streams, and one failure that costs one turn."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from agentgym_tok.policies.base import BasePolicy, Tell, tell_all
from agentgym_tok.policies.http.engine import HttpEngine
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import Completion, Delta, Request

__all__ = ["HttpPolicy", "split_address"]

_NO_IDS = as_ids([])
_T = TypeVar("_T")


class HttpPolicy(BasePolicy):
    """Answer through an `HttpEngine`; subclasses say how one turn is drawn.

    Args:
        engine: The server.
    """

    def __init__(self, engine: HttpEngine) -> None:
        self._engine = engine
        self.engine = self.name
        """Name and version of what draws the turns, as every completion has it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is in flight and close all connections."""
        self._engine.close()

    def run_in_loop(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return what a coroutine returns in the loop that the connections belong to.

        For servers that ask this policy: there no piece of a turn has to go from thread to thread.

        Raises:
            PolicyError: The policy is closed.
        """
        return self._engine.loop.run(coroutine)

    @property
    def retries(self) -> int:
        """Requests that were sent again so far."""
        return self._engine.budget.retries

    def answer(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            PolicyError: The engine failed, refused, was too slow, or answered what no engine may answer.
        """
        return self._engine.loop.run(self._answer(request))

    def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """Answer a batch at once, in order; an exception in a turn's place says why there is none."""
        return self._engine.loop.run(self._answers(requests))

    async def complete(self, request: Request) -> Completion:
        """Answer one request for callers with a loop of their own, such as the harness; cancelling it aborts the turn.

        Raises:
            PolicyError: As in `answer`.
        """
        return await self._engine.loop.awaited(self._answer(request))

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Answer one request piece by piece; closing the iterator early makes the engine stop.

        Raises:
            PolicyError: As in `answer`; once there was a piece, a broken stream is not asked for again.
        """
        return self._pieces(request)

    async def told(self, request: Request, tell: Tell) -> Completion:
        """Answer one request, and tell each piece of it before the next one is read.

        A caller in the loop of the connections (`run_in_loop`) reads the answer in its own task: for a server that
        passes hundreds of streams on, each piece that changes tasks costs as much as all else that is done for it.

        Raises:
            PolicyError: As in `stream`.
        """
        if self._engine.loop.is_here():
            return await self._answer(request, tell)
        return await tell_all(self._pieces(request), tell, self.name)

    def _pieces(self, request: Request) -> AsyncGenerator[Delta, None]:
        async def produce(take: Callable[[Delta], None]) -> None:
            async def tell(piece: Delta) -> None:
                take(piece)

            completion = await self._answer(request, tell)
            take(Delta(_NO_IDS, None, completion))

        return self._engine.loop.pieces(produce)

    async def draw(self, request: Request, room: int, tell: Tell | None) -> Completion:
        """Make one attempt at a turn.

        Args:
            request: What is asked.
            room: Most tokens to draw.
            tell: Takes each piece of a stream; None asks for the whole turn.

        Raises:
            Transient: Another attempt may help, and nothing was told yet: that cannot be taken back.
            PolicyError: None will.
        """
        raise NotImplementedError

    async def _answers(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        return list(await asyncio.gather(*(self._kept_answer(request) for request in requests)))

    async def _kept_answer(self, request: Request) -> Completion | Exception:
        try:
            return await self._answer(request)
        except Exception as error:  # noqa: BLE001  # the other requests' turns are drawn, and must not be lost
            return error

    async def _answer(self, request: Request, tell: Tell | None = None) -> Completion:
        wanted = request.sampling.max_tokens
        room = wanted if self.context_limit is None else min(wanted, self.context_limit - len(request.ids_T))
        if room < 1:
            return Completion(_NO_IDS, finish_reason="truncated", engine=self.engine, sampling=request.sampling)
        return await self._engine.retrying(lambda: self.draw(request, room, tell), request.deadline)


def split_address(target: str) -> tuple[str, str]:
    """Split `URL#MODEL`, where the URL may end in `/v1`; the model is empty where none is named."""
    url, _, model = target.partition("#")
    return url.rstrip("/").removesuffix("/v1"), model
