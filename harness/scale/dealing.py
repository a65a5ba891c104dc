"""Who plays what: slots are dealt out as workers have room, and again where a worker is lost."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from agentgym_tok.errors import ConfigError
from agentgym_tok.harness.resume import Place
from agentgym_tok.harness.slots import Slot
from agentgym_tok.trace import Episode

__all__ = ["Deal", "Hand", "WorkerLost"]


class WorkerLost(Exception):
    """The process that played is gone, or nobody can reach it."""


class Hand(Protocol):
    """One worker, as whoever deals sees it. Each method raises `WorkerLost` where that is what happened."""

    async def open(self) -> None:
        """Wait until it can play."""
        ...

    async def play(self, slot: Slot) -> Episode:
        """Return the episode of a slot, once it is stored."""
        ...

    async def recover(self, wanted: Collection[Place]) -> Mapping[Place, Episode]:
        """Make sure that the worker is gone, and return what it had stored of some slots by then."""
        ...

    async def close(self) -> None:
        """End what it plays, and let it close its files; raises nothing."""
        ...


H = TypeVar("H", bound=Hand)


class Deal:
    """Deal slots out until each has its episode.

    A slot whose worker was lost is dealt again, from its start. Before its last attempt it waits for a worker without
    other work: so whoever brought the worker down is alone then, and the others are not blamed.

    Args:
        slots: What is to be played, in their order.
        room: Most slots of one worker at a time.
        attempts: So many workers may be lost over a slot.
        settle: Called with each slot and its episode, once.
        give_up: Makes the record of a slot that has no attempt left, of the reason.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        *,
        room: int,
        attempts: int,
        settle: Callable[[Slot, Episode], None],
        give_up: Callable[[Slot, str], Episode],
    ) -> None:
        self._queue = deque(slots)
        self._left = len(slots)
        self._room, self._attempts = room, attempts
        self._settle, self._give_up = settle, give_up
        self._losses: Counter[Place] = Counter()
        self._false_starts = 0
        self._news = asyncio.Event()

    async def run(self, hands: Sequence[H], hire: Callable[[H], H]) -> None:
        """Deal to some workers, and to one that is hired for each that is lost.

        Args:
            hands: The workers; one that is not ready yet joins when it is.
            hire: Gets the worker that was lost, and returns another one.

        Raises:
            ConfigError: So many workers as an episode has attempts were lost one after the other before they began.
            BaseException: What a worker raised that is not lost, or ends the run; all others have stopped then.
        """
        serving = {asyncio.ensure_future(self._serve(hand)): hand for hand in hands}
        everyone = [*hands]
        try:
            while self._left:
                done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    lost = serving.pop(task)
                    task.result()
                    if self._left:
                        hand = hire(lost)
                        everyone.append(hand)
                        serving[asyncio.ensure_future(self._serve(hand))] = hand
        finally:
            await _stop(serving)
            await asyncio.gather(*(hand.close() for hand in everyone))

    async def _serve(self, hand: Hand) -> None:
        """Keep a worker busy until nothing is left, or it is lost."""
        flying: dict[asyncio.Task[Episode], Slot] = {}
        began = False
        try:
            await hand.open()
            began, self._false_starts = True, 0
            while self._left:
                while (slot := self._next(flying.values())) is not None:
                    flying[asyncio.ensure_future(hand.play(slot))] = slot
                for task in await self._first_of(flying):
                    episode = task.result()
                    self._settled(flying.pop(task), episode)
        except WorkerLost as lost:
            await _stop(flying)
            if not began:
                self._missed(lost)
            stored = await hand.recover({slot.place for slot in flying.values()})
            for task, slot in flying.items():
                if not task.cancelled() and task.exception() is None:
                    self._settled(slot, task.result())
                elif slot.place in stored:
                    self._settled(slot, stored[slot.place])
                else:
                    self._again(slot, str(lost))
        finally:
            await _stop(flying)

    async def _first_of(self, flying: Iterable["asyncio.Task[Episode]"]) -> "set[asyncio.Task[Episode]]":
        """Wait for an episode, or until there may be more to do; return the episodes that came."""
        news: asyncio.Task[Any] = asyncio.ensure_future(self._news.wait())
        try:
            done, _ = await asyncio.wait({*flying, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        return done - {news}

    def _next(self, flying: Collection[Slot]) -> Slot | None:
        """Take the next slot for a worker that has some already; None where it may not have another one now."""
        if not self._queue or len(flying) >= self._room:
            return None
        if flying and any(map(self._is_last, (self._queue[0], *flying))):
            return None
        return self._queue.popleft()

    def _is_last(self, slot: Slot) -> bool:
        return 0 < self._losses[slot.place] == self._attempts - 1

    def _again(self, slot: Slot, reason: str) -> None:
        self._losses[slot.place] += 1
        if self._losses[slot.place] >= self._attempts:
            self._settled(slot, self._give_up(slot, reason))
        else:
            self._queue.append(slot)
            self._tell()

    def _settled(self, slot: Slot, episode: Episode) -> None:
        self._left -= 1
        self._settle(slot, episode)
        if not self._left:
            self._tell()

    def _missed(self, lost: WorkerLost) -> None:
        self._false_starts += 1
        if self._false_starts >= self._attempts:
            raise ConfigError(
                "workers do not start",
                where=f"the last {self._false_starts} of them",
                got=str(lost),
                fix="look at the cluster (ray status), and at its nodes' /tmp/ray/session_latest/logs",
            ) from lost

    def _tell(self) -> None:
        """Wake the workers that wait for work."""
        news, self._news = self._news, asyncio.Event()
        news.set()


async def _stop(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    tasks = [*tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
