"""A cluster of two nodes, of which one is killed: the results are those of a plain run, and nothing counts twice."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from standins import CHAT, POISON, deadly, home, mistaken

from agentgym_tok.errors import TraceError
from agentgym_tok.evaluate import Evaluation, Part, RunResults
from agentgym_tok.harness import Harness
from agentgym_tok.harness.scale import RayOptions, RayWorkers, ray_workers
from agentgym_tok.trace import Episode, TraceStore, verify

# Clusters of several processes that are killed and waited for take a minute, and over 1 GB.
pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("quiet_ray")]

SLOW = "python:standins:slow"
TASKS, GROUP = range(8), 3
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import test_ray_cluster as t; t.child(*sys.argv[2:])"


class Nodes:
    """Two nodes of one CPU each; the first one is the driver's."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        memory = {"object_store_memory": 80 * 2**20}
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory}
        )
        self.second = self.cluster.add_node(num_cpus=1, **memory)
        self.options = RayOptions(address=self.cluster.address)

    def kill(self) -> None:
        """Kill the second node, as if somebody had pulled its plug."""
        self.cluster.remove_node(self.second, allow_graceful=False)


@pytest.fixture
def nodes(quiet_ray: None) -> Iterator[Nodes]:
    import ray

    ray.shutdown()
    made = Nodes()
    yield made
    ray.shutdown()
    made.cluster.shutdown()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    with TraceStore(tmp_path_factory.mktemp("plain"), chat=CHAT) as store:
        return told(Harness("random", CHAT, store=store).run_many(home, TASKS, group_size=GROUP))


def told(episodes: Sequence[Episode]) -> list[Any]:
    return [
        (
            (episode.head.task, episode.head.group_id, episode.head.replica, episode.head.seed, episode.status),
            [(turn.context.digest, turn.completion.ids_T.tolist(), turn.reward, turn.seed) for turn in episode.turns],
        )
        for episode in episodes
    ]


def check(run: Path, count: int) -> None:
    """Check that the trace is whole, and holds each episode that counts once."""
    found = verify(run)
    assert (found.breaches, found.running) == ((), 0)
    with TraceStore(run, mode="r") as store:
        ended = Counter((head.group_id, head.replica) for head, status in store.heads() if status in {"done", "failed"})
    assert len(ended) == count
    assert set(ended.values()) == {1}


@pytest.mark.parametrize("shards", ["of workers", "of the driver"])
def test_a_node_that_is_killed_changes_no_result(
    tmp_path: Path, nodes: Nodes, plain: list[Any], shards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shards == "of the driver":
        monkeypatch.setattr(ray_workers, "machine", lambda: "another machine than theirs")
    seen: list[Episode] = []

    def watch(episode: Episode) -> None:
        seen.append(episode)
        if len(seen) == 5:
            nodes.kill()

    with TraceStore(tmp_path, chat=CHAT) as store:
        harness = Harness(SLOW, CHAT, store=store, backend=nodes.options)
        episodes = harness.run_many(home, TASKS, group_size=GROUP, concurrency=4, on_episode=watch)
        harness.policy.close()  # type: ignore[attr-defined]
    assert told(episodes) == plain
    assert len(seen) == len(episodes) == len({(episode.group_id, episode.head.replica) for episode in seen})
    check(tmp_path, len(episodes))
    assert len(list((tmp_path / "shards").glob("main.ray-*.sqlite"))) == (2 if shards == "of workers" else 0)


def test_an_episode_that_brings_workers_down_fails_alone(tmp_path: Path, nodes: Nodes) -> None:
    with TraceStore(tmp_path, chat=CHAT) as store:
        harness = Harness("random", CHAT, store=store, backend=nodes.options)
        episodes = harness.run_many(deadly, TASKS, concurrency=4)
        assert [episode.status for episode in episodes] == ["failed" if n == POISON else "done" for n in TASKS]
        failure = episodes[POISON].failure
        assert failure is not None
        assert (failure.boundary, failure.kind) == ("harness", "WorkerLost")
        assert "3 workers were lost over it" in failure.message
        # What a world of its own raises is a record of that world, as everywhere.
        broken = harness.run_many(mistaken, [0], seed=1)
        assert broken[0].failure is not None
        assert (broken[0].failure.boundary, broken[0].failure.kind) == ("world", "ZeroDivisionError")
        harness.policy.close()  # type: ignore[attr-defined]
    check(tmp_path, len(episodes) + 1)


def parts() -> list[Part]:
    return [Part("home", home, episodes=len(TASKS), samples=GROUP), Part("again", home, episodes=2)]


def evaluation(folder: Path, **options: Any) -> Evaluation:
    return Evaluation(parts(), SLOW, CHAT, folder, concurrency=4, config={"test": 1}, **options)


def child(folder: str, address: str) -> None:
    """Evaluate on the cluster; in a process of its own."""
    evaluation(Path(folder), backend=RayOptions(address=address)).run()


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_killed_or_interrupted_leaves_a_run_that_goes_on(
    tmp_path: Path, nodes: Nodes, blow: signal.Signals
) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-c", _CHILD, str(Path(__file__).parent), str(run), nodes.options.address or ""]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as driver:
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and driver.poll() is None and _ended(run) < 4:
            time.sleep(0.05)
        assert driver.poll() is None, driver.communicate()[1].decode()
        os.kill(driver.pid, blow)
        driver.communicate(timeout=60)
    before = _ended(run)
    assert before >= 4
    results = evaluation(run, backend=nodes.options).run(resume=True)
    expected = evaluation(tmp_path / "plain").run()
    assert _compared(results) == _compared(expected)
    assert before < len(expected.episodes), "it had ended before the blow"
    check(run, len(expected.episodes))


def _ended(run: Path) -> int:
    try:
        with TraceStore(run, mode="r") as store:
            return sum(status == "done" for _, status in store.heads())
    except TraceError:  # nobody has committed yet
        return 0


def _compared(results: RunResults) -> list[Any]:
    return [episode.model_dump(exclude={"episode"}) for episode in results.episodes]


def test_all_workers_play_by_the_newest_weights_a_replaced_one_too(tmp_path: Path, nodes: Nodes) -> None:
    make_env = functools.partial(home, max_steps=2)
    workers = RayWorkers("python:standins:taught", CHAT, nodes.options)
    with TraceStore(tmp_path, chat=CHAT) as store:
        harness = Harness(workers, CHAT, store=store)
        for version in range(3):
            workers.update_weights({"a": np.full(1000, version, np.float32)}, f"step {version}")
            if version == 2:
                nodes.kill()
                nodes.second = nodes.cluster.add_node(num_cpus=1)
            episodes = harness.run_many(make_env, TASKS, seed=version, concurrency=4)
            turns = [turn for episode in episodes for turn in episode.turns]
            named = {name for turn in turns for name, _, _ in turn.completion.weight_versions}
            assert named == {f"step {version}"}
            assert {turn.action_text for turn in turns} == {f"look {1000 * version}"}
    workers.close()
    check(tmp_path, 3 * len(TASKS))
