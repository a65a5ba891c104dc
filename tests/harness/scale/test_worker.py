"""A worker in this process: what it refuses to begin with, which shard it writes, and what it leaves behind."""

import asyncio
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import pytest
from play import CHAT, make_env

from agentgym_tok import ChatFormat
from agentgym_tok.errors import ConfigError, FingerprintMismatch, StoreLocked, UnknownName
from agentgym_tok.harness import Budget, Harness, worker_shards
from agentgym_tok.harness.scale.worker import Folder, Order, Worker, machine
from agentgym_tok.harness.slots import Slot, slots_of
from agentgym_tok.harness.worker_shards import bring_to_rest, ended_in, store_whole
from agentgym_tok.policies import BasePolicy
from agentgym_tok.trace import Episode, RunMeta, TraceStore, verify
from agentgym_tok.trace.records import library_version
from agentgym_tok.types import Completion, Request

R = TypeVar("R")


class Taught(BasePolicy):
    """Say the version of the weights, and hang where there are none."""

    name = "taught"
    version = ""

    def answer(self, request: Request) -> Completion:
        turn_T = CHAT.encode_turn("<action>look</action>")
        versions = ((self.version, 0, len(turn_T)),) if self.version else ()
        return Completion(turn_T, engine=self.name, sampling=request.sampling, weight_versions=versions)

    def update_weights(self, state: Mapping[str, Any], version: str) -> None:
        assert state == {"a": 1}
        self.version = version


def started(policy: Any = "random", chat: ChatFormat = CHAT, library: str | None = None, **weights: Any) -> Worker:
    worker = Worker("ray-1")
    given = {"state": None, "version": "", **weights}
    asyncio.run(worker.start(library or library_version(), cloudpickle.dumps((policy, chat)), **given))
    return worker


def order(run: Path | None, *, at: str | None = None, make: Any = make_env, **options: Any) -> bytes:
    folder = None
    if run is not None:
        mark = run / "shards" / ".driver"
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        folder = Folder(run, "main.", RunMeta.of(CHAT), mark, at or machine())
    return cloudpickle.dumps(Order(make, options, folder))


def slots_for(count: int) -> list[Slot]:
    env = make_env()
    return slots_of(env, range(count), 2, 3)


async def play(worker: Worker, body: bytes, count: int) -> tuple[str | None, list[Episode]]:
    shard = await worker.open("job", body)
    episodes = await asyncio.gather(*(worker.play("job", slot) for slot in slots_for(count)))
    await worker.close("job")
    return shard, list(episodes)


def told(episodes: list[Episode]) -> list[Any]:
    return [
        (
            (episode.head.task, episode.head.group_id, episode.head.replica, episode.head.seed, episode.status),
            [(turn.context.digest, turn.completion.ids_T.tolist(), turn.reward, turn.seed) for turn in episode.turns],
        )
        for episode in episodes
    ]


def test_a_worker_plays_what_a_harness_would(tmp_path: Path) -> None:
    with TraceStore(tmp_path / "plain", chat=CHAT) as store:
        plain = Harness("random", CHAT, store=store).run_many(make_env, range(3), group_size=2, seed=3)
    shard, episodes = asyncio.run(play(started(), order(tmp_path / "run"), 3))
    assert shard == "main.ray-1"
    assert told(episodes) == told(plain)
    with TraceStore(tmp_path / "run", mode="r", shard=shard) as store:
        assert told(
            sorted(store.episodes(), key=lambda one: [slot.place for slot in slots_for(3)].index(place_of(one)))
        )
        assert len(store) == 6
    assert [path.name for path in (tmp_path / "run" / "shards").iterdir() if "sqlite" in path.name] == [
        "main.ray-1.sqlite"
    ]


def place_of(episode: Episode) -> tuple[str, int]:
    return episode.group_id, episode.head.replica


@pytest.mark.parametrize("apart", ["another machine", "another folder", "no folder"])
def test_elsewhere_episodes_travel_and_are_stored_as_they_were(tmp_path: Path, apart: str) -> None:
    run = None if apart == "no folder" else tmp_path / "far"
    body = order(run, at="elsewhere" if apart == "another machine" else None)
    if apart == "another folder":
        (tmp_path / "far" / "shards" / ".driver").unlink()
    shard, episodes = asyncio.run(play(started(), body, 2))
    assert shard is None
    assert not list(tmp_path.rglob("*.sqlite"))
    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        for episode in cloudpickle.loads(cloudpickle.dumps(episodes)):
            store_whole(store, episode)
        stored = [store.episode(episode.id) for episode in episodes]
    assert told(stored) == told(episodes)
    assert [one.turns[0].messages for one in stored] == [one.turns[0].messages for one in episodes]
    assert verify(tmp_path / "run").breaches == ()


def test_other_versions_and_formats_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"different versions.*worker ray-1 on .*expected: 9\.9.*pip install.*==9\.9"):
        started(library="9.9")

    body = cloudpickle.dumps(("random", CHAT)).replace(CHAT.fingerprint[:32].encode(), b"0" * 32)
    with pytest.raises(FingerprintMismatch, match="worker ray-1 on"):
        asyncio.run(Worker("ray-1").start(library_version(), body, None, ""))


def test_a_policy_that_cannot_be_built_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match=r"worker ray-1 on .*exprt"):
        started("exprt")
    with pytest.raises(ConfigError, match="worker ray-1 on"):
        started("python:no_such_module:policy")
    monkeypatch.setattr("agentgym_tok.harness.scale.worker.load_policy", lambda *_: 1 / 0)
    with pytest.raises(ConfigError, match=r"cannot be built in a worker.*ZeroDivisionError"):
        started()


def test_worlds_that_cannot_be_made_say_where() -> None:
    def broken() -> Any:
        raise OSError("no such disk")

    with pytest.raises(ConfigError, match=r"worlds cannot be made in a worker.*worker ray-1 on .*no such disk"):
        asyncio.run(started().open("job", order(None, make=broken)))


def test_tokens_name_the_weights_that_a_worker_was_given() -> None:
    worker = started(Taught())
    worker_late = started(Taught(), state={"a": 1}, version="7")

    async def both() -> list[str]:
        await worker.update_weights({"a": 1}, "7")
        found = []
        for one in (worker, worker_late):
            _, episodes = await play(one, order(None, budget=Budget(turns=2)), 1)
            found += [turn.completion.weight_versions[0][0] for episode in episodes for turn in episode.turns]
        return found

    assert set(asyncio.run(both())) == {"7"}


def test_what_is_in_flight_when_a_job_ends_is_abandoned(tmp_path: Path) -> None:
    worker = started(Taught())

    async def cut_off() -> None:
        await worker.open("job", order(tmp_path, make=functools.partial(make_env, max_steps=10_000)))
        playing = [asyncio.ensure_future(worker.play("job", slot)) for slot in slots_for(2)]
        await asyncio.sleep(0.3)
        await worker.close("job")
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*playing, return_exceptions=True)
        )
        await worker.close("job")  # a second time changes nothing

    asyncio.run(cut_off())
    with TraceStore(tmp_path, mode="r") as store:
        assert {status for _, status in store.heads()} == {"abandoned"}
    assert verify(tmp_path).breaches == ()
    assert not ended_in(tmp_path, "main.ray-1", {slot.place for slot in slots_for(2)})


def test_a_shard_is_at_rest_only_when_nobody_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_shards, "_PATIENCE_S", 0.2)
    bring_to_rest(tmp_path, ["never-begun"])
    with TraceStore(tmp_path, shard="main.ray-1", chat=CHAT) as store:
        plain = Harness("random", CHAT).run_many(make_env, [0])
        store.begin(plain[0].head)
        with pytest.raises(StoreLocked):
            bring_to_rest(tmp_path, ["main.ray-1"])
    bring_to_rest(tmp_path, ["main.ray-1"])
    with TraceStore(tmp_path, mode="r") as store:
        assert [status for _, status in store.heads()] == ["abandoned"]
