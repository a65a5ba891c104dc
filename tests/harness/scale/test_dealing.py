"""Dealing: each slot gets one episode, whoever is lost, and nobody pays for what another one does."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError, TraceError
from agentgym_tok.harness.resume import Place
from agentgym_tok.harness.scale.dealing import Deal, WorkerLost
from agentgym_tok.harness.slots import Slot
from agentgym_tok.trace import Episode, EpisodeHead, Failure

ATTEMPTS = 3


def slots_of(count: int) -> list[Slot]:
    return [Slot(f"task {number}", number, f"group {number}", 0) for number in range(count)]


def episode_of(slot: Slot, status: str = "done") -> Episode:
    failure = None if status == "done" else Failure("harness", "WorkerLost")
    return Episode(EpisodeHead(f"{slot.task} {status}", slot.task, seed=slot.seed), (), status, failure=failure)  # type: ignore[arg-type]


class Table:
    """Workers that are lost as a plan says, and what became of each slot."""

    def __init__(self, count: int, *, room: int = 4, falls: Iterable[int] = (), poison: Iterable[int] = ()) -> None:
        self.slots = slots_of(count)
        self.settled: list[Slot] = []
        self.episodes: list[Episode] = []
        self.played: Counter[int] = Counter()
        self.given_up: list[int] = []
        self.hands: list[Hand] = []
        self.falls, self.poison = list(falls), set(poison)
        self.keeps = True
        self.deal = Deal(self.slots, room=room, attempts=ATTEMPTS, settle=self.settle, give_up=self.give_up)

    def settle(self, slot: Slot, episode: Episode) -> None:
        self.settled.append(slot)
        self.episodes.append(episode)

    def give_up(self, slot: Slot, _: str) -> Episode:
        self.given_up.append(slot.seed)
        return episode_of(slot, "failed")

    def hire(self, _: object = None) -> "Hand":
        self.hands.append(Hand(self, self.falls.pop() if self.falls else None))
        return self.hands[-1]

    def run(self, workers: int) -> None:
        asyncio.run(self.deal.run([self.hire() for _ in range(workers)], self.hire))


class Hand:
    """A worker that is lost with the episode of a number."""

    def __init__(self, table: Table, falls_at: int | None) -> None:
        self.table, self.falls_at = table, falls_at
        self.stored: dict[Place, Episode] = {}
        self.begun = self.most = self.flying = 0
        self.lost = self.closed = False

    async def open(self) -> None:
        await asyncio.sleep(0)

    async def play(self, slot: Slot) -> Episode:
        self.begun += 1
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            for _ in range(slot.seed % 3 + 1):
                await asyncio.sleep(0)
                self._stand()
            if slot.seed in self.table.poison or self.begun == self.falls_at:
                self.lost = True
            # What is stored may be lost on the way back.
            self.table.played[slot.seed] += 1
            self.stored[slot.place] = episode_of(slot)
            await asyncio.sleep(0)
            self._stand()
            return self.stored[slot.place]
        finally:
            self.flying -= 1

    def _stand(self) -> None:
        if self.lost:
            raise WorkerLost("SIGKILL")

    async def recover(self, wanted: Collection[Place]) -> Mapping[Place, Episode]:
        self._check()
        if not self.table.keeps:
            return {}
        return {place: episode for place, episode in self.stored.items() if place in wanted}

    def _check(self) -> None:
        assert self.flying == 0, "somebody still waits for it"

    async def close(self) -> None:
        self._check()
        self.closed = True


@given(
    count=st.integers(1, 30),
    workers=st.integers(1, 4),
    room=st.integers(1, 6),
    falls=st.lists(st.integers(1, 8), max_size=2),
    keeps=st.booleans(),
)
def test_each_slot_is_settled_once_whoever_is_lost(
    count: int, workers: int, room: int, falls: Sequence[int], keeps: bool
) -> None:
    table = Table(count, room=room, falls=falls)
    table.keeps = keeps
    table.run(workers)
    assert sorted(slot.seed for slot in table.settled) == list(range(count))
    assert not table.given_up
    assert {episode.head.task for episode in table.episodes} == {slot.task for slot in table.slots}
    assert all(hand.most <= room and hand.closed for hand in table.hands)
    if keeps:  # what a lost worker had stored is not played again
        assert set(table.played.values()) == {1}


@given(count=st.integers(1, 20), workers=st.integers(1, 3), room=st.integers(1, 6), data=st.data())
def test_only_what_brings_workers_down_is_given_up(count: int, workers: int, room: int, data: st.DataObject) -> None:
    poison = data.draw(st.sets(st.integers(0, count - 1), max_size=3))
    table = Table(count, room=room, poison=poison)
    table.keeps = False
    table.run(workers)
    assert sorted(table.given_up) == sorted(poison)
    failed = {slot.seed for slot, end in zip(table.settled, table.episodes, strict=True) if end.status == "failed"}
    assert failed == poison
    assert len(table.settled) == count


def test_an_error_of_a_worker_ends_the_deal_and_closes_everybody() -> None:
    table = Table(9)

    async def broken(_: Slot) -> Episode:
        raise TraceError("the disk is full")

    async def run() -> None:
        hands = [table.hire() for _ in range(3)]
        hands[1].play = broken  # type: ignore[method-assign]
        await table.deal.run(hands, table.hire)

    with pytest.raises(TraceError, match="disk is full"):
        asyncio.run(run())
    assert [hand.closed for hand in table.hands] == [True] * 3


def test_a_deal_that_is_cancelled_closes_everybody() -> None:
    table = Table(5)

    async def never(_: Slot) -> Episode:
        await asyncio.Event().wait()
        raise AssertionError

    async def run() -> None:
        hands = [table.hire() for _ in range(2)]
        for hand in hands:
            hand.play = never  # type: ignore[method-assign]
        task = asyncio.ensure_future(table.deal.run(hands, table.hire))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert [hand.closed for hand in table.hands] == [True] * 2
    assert not table.settled


def test_workers_that_never_start_are_not_replaced_for_ever() -> None:
    table = Table(2)

    async def gone() -> None:
        raise WorkerLost("no such file: python3")

    def hire(_: object = None) -> Hand:
        hand = table.hire()
        hand.open = gone  # type: ignore[method-assign]
        return hand

    with pytest.raises(ConfigError, match=r"workers do not start.*no such file"):
        asyncio.run(table.deal.run([hire()], hire))
    assert len(table.hands) == ATTEMPTS


def test_a_late_worker_takes_its_share_and_is_not_waited_for() -> None:
    table, waiting = Table(6, room=2), asyncio.Event()

    def late(hand: Hand, wait: Callable[[], object]) -> Hand:
        async def open_late() -> None:
            await wait()  # type: ignore[misc]

        hand.open = open_late  # type: ignore[method-assign]
        return hand

    async def run() -> None:
        await table.deal.run([table.hire(), late(table.hire(), waiting.wait)], table.hire)

    asyncio.run(run())
    assert len(table.settled) == 6
    assert table.hands[1].begun == 0
