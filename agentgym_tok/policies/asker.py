"""One policy for many episodes: what they ask at the same time goes out as one batch."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.base import Listen
from agentgym_tok.tokens import TURN_ORIGINS
from agentgym_tok.types import Completion, Policy, Request

__all__ = ["Answer", "Asker"]

Answer: TypeAlias = Completion | Exception
"""A turn, or why there is none."""

_T = TypeVar("_T")

_ROUNDS = 4
"""So many rounds of the loop bring no new request before a batch goes out: an episode's step takes fewer."""

_GRACE_S = 0.5
"""How much later than a request's deadline the policy's own error may come, in seconds."""

_Asked: TypeAlias = tuple[Request, "asyncio.Future[Answer]"]
_Job: TypeAlias = tuple[Sequence[_Asked], "asyncio.Future[None]"]


class Asker:
    """Ask a policy from many coroutines of one event loop.

    A policy with a coroutine function `complete(request)` is asked request by request, all at once. Any other one is
    asked by `generate`, in a thread of its own, with whatever waits when it is free: so a batch is as large as it can
    be, and nobody waits for an episode that is busy elsewhere.

    A policy that does not answer by a request's deadline loses that request's episode. Its thread cannot be stopped;
    later requests wait for it until their own deadlines.

    Args:
        policy: Where turns come from.
        keeps: Turns that come while whoever asked is cancelled are kept for `drawn`.
    """

    def __init__(self, policy: Policy, *, keeps: bool = True) -> None:
        self._policy = policy
        self._keeps = keeps
        self._complete: Callable[[Request], Coroutine[Any, Any, Completion]] | None = getattr(policy, "complete", None)
        self._waiting: list[_Asked] = []
        self._woken = asyncio.Event()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._server: asyncio.Task[None] | None = None
        self._drawn: dict[Request, Answer] = {}
        self._listens = getattr(policy, "listens", False)
        # Held as long as the policy may still draw the turn, which whoever asked may have left.
        self._listeners: WeakKeyDictionary[Request, Listen] = WeakKeyDictionary()

    async def __aenter__(self) -> Self:
        if self._complete is None:
            self._loop = asyncio.get_running_loop()
            # A daemon: a policy that hangs must not keep the process.
            threading.Thread(target=self._work, name=f"policy {self._policy.name}", daemon=True).start()
            self._server = asyncio.create_task(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.cancel()
            self._jobs.put(None)

    async def ask(self, request: Request, listen: Listen | None = None) -> Answer:
        """Return the turn, or the exception that says why there is none.

        Args:
            request: What is asked.
            listen: Is told of each token by a policy that `listens`, in its thread.

        Raises:
            BaseException: What is no `Exception`, such as a KeyboardInterrupt in the policy.
        """
        loop = asyncio.get_running_loop()
        late = None
        if request.deadline is not None:
            late = loop.time() + max(0.0, request.deadline - time.time()) + _GRACE_S
        limit = asyncio.timeout_at(late)
        if listen is not None and self._listens:
            self._listeners[request] = listen
        try:
            async with limit:
                return await (self._batched(request) if self._complete is None else self._single(request))
        except Exception as error:  # noqa: BLE001  # whatever an engine raises costs this turn alone
            if limit.expired():
                got = "its deadline passed"
                return PolicyError("the policy gave no answer in time", where=self._policy.name, got=got)
            return error

    def drawn(self, request: Request) -> Answer | None:
        """Return the turn that came for a request while whoever asked was cancelled; None where none did."""
        return self._drawn.pop(request, None)

    async def _single(self, request: Request) -> Answer:
        assert self._complete is not None
        if not self._keeps:
            return self._turn(await self._complete(request))
        return self._turn(await self._kept(request, asyncio.ensure_future(self._complete(request))))

    async def _batched(self, request: Request) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        self._woken.set()
        return await self._kept(request, answer)

    async def _kept(self, request: Request, answer: "asyncio.Future[_T]") -> _T:
        """Wait for an answer; one that is there when whoever waits is cancelled is kept for `drawn`."""
        try:
            return await answer
        except asyncio.CancelledError:
            if self._keeps and answer.done() and not answer.cancelled() and answer.exception() is None:
                self._drawn[request] = self._turn(answer.result())
            raise

    async def _serve(self) -> None:
        """Hand batches to the thread, one at a time."""
        while True:
            await self._woken.wait()
            await self._settle()
            self._woken.clear()
            batch, self._waiting = [asked for asked in self._waiting if not asked[1].done()], []
            if batch:
                done = asyncio.get_running_loop().create_future()
                self._jobs.put((batch, done))
                await done

    async def _settle(self) -> None:
        """Let every episode that can ask do so first."""
        quiet, known = 0, 0
        while quiet < _ROUNDS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == known else 0
            known = len(self._waiting)

    # ---- in the policy's thread

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            batch, done = job
            self._generate(batch)
            self._tell(lambda done=done: done.done() or done.set_result(None))  # type: ignore[misc]

    def _generate(self, batch: Sequence[_Asked]) -> None:
        requests = [request for request, _ in batch]
        try:
            if any(request in self._listeners for request in requests):
                answers: object = self._policy.generate(requests, self._heard)  # type: ignore[call-arg]
            else:
                answers = self._policy.generate(requests)
        except Exception as error:  # noqa: BLE001  # an engine may raise anything; it costs an episode, not the batch
            if len(batch) == 1:
                return self._give(batch, [error])
            # Nothing was drawn, and somewhere stands the request that failed: one by one, only that one does.
            for asked in batch:
                self._generate([asked])
            return None
        except BaseException as error:  # noqa: BLE001  # it ends the run, in the thread of the loop
            return self._tell(lambda error=error: _raise(batch, error))  # type: ignore[misc]
        if isinstance(answers, Sequence) and len(answers) == len(batch):
            return self._give(batch, [self._turn(answer) for answer in answers])
        # Which turn belongs to which context cannot be known.
        got = f"{len(answers)} answers" if isinstance(answers, Sequence) else type(answers).__name__
        expected = f"a list of {len(batch)} answers"
        missed = PolicyError(
            "the policy did not answer each request", where=self._policy.name, got=got, expected=expected
        )
        return self._give(batch, [missed] * len(batch))

    def _heard(self, request: Request, place: int, index: int, logprob: float) -> bool:
        listen = self._listeners.get(request)
        return listen is None or listen(request, place, index, logprob)

    def _turn(self, answer: object) -> Answer:
        if isinstance(answer, Exception) or (isinstance(answer, Completion) and answer.origin in TURN_ORIGINS):
            return answer
        return PolicyError(
            "the policy's answer is no turn",
            where=self._policy.name,
            got=f"origin {answer.origin!r}" if isinstance(answer, Completion) else type(answer).__name__,
            expected=f"a Completion of origin {', '.join(sorted(TURN_ORIGINS))}, or the exception that says why not",
        )

    def _give(self, batch: Sequence[_Asked], answers: Sequence[Answer]) -> None:
        self._tell(lambda: _resolve(batch, answers))

    def _tell(self, callback: Callable[[], Any]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


def _resolve(batch: Sequence[_Asked], answers: Sequence[Answer]) -> None:
    for (_, future), answer in zip(batch, answers, strict=True):
        if not future.done():
            future.set_result(answer)


def _raise(batch: Sequence[_Asked], error: BaseException) -> None:
    """Raise in the first episode that waits; what ends it ends the others."""
    future = next((future for _, future in batch if not future.done()), None)
    if future is not None:
        future.set_exception(error)
