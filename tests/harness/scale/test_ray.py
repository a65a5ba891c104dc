"""Ray on this machine: an evaluation on workers is the one that was played here, and what is missing is said."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from standins import CHAT, home

from agentgym_tok.errors import ConfigError, MissingExtra, UnknownName
from agentgym_tok.evaluate import Evaluation, Part, RunResults
from agentgym_tok.harness import Budget, Harness
from agentgym_tok.harness.scale import RayOptions, RayWorkers
from agentgym_tok.trace import TraceStore, verify

pytestmark = pytest.mark.usefixtures("quiet_ray")

PARTS = (
    Part("home", home, episodes=4, samples=2, world="alfworld"),
    Part("again", home, episodes=2, world="alfworld"),
)


def told(results: RunResults) -> list[dict[str, Any]]:
    return [episode.model_dump(exclude={"episode"}) for episode in results.episodes]


@pytest.mark.deep  # starts Ray, which takes from 6 to 100 seconds where other tests run beside it
def test_an_evaluation_on_workers_is_the_one_that_was_played_here(tmp_path: Path) -> None:
    def played(folder: str, **options: Any) -> RunResults:
        return Evaluation(PARTS, "random", CHAT, tmp_path / folder, concurrency=4, **options).run()

    here, there = played("here"), played("there", backend="ray")
    assert told(there) == told(here)
    assert there.scores == here.scores
    assert there.made_by.policy == "random"
    run = tmp_path / "there"
    shards = sorted(path.stem for path in (run / "shards").glob("*.sqlite"))
    assert shards[0] == "main"
    # A worker that was ready late may have found nothing left to play.
    assert 2 <= len(shards) <= 3, "a shard for each worker that played"
    found = verify(run)
    assert (found.breaches, found.episodes, found.running) == ((), len(here.episodes), 0)
    with TraceStore(run, mode="r") as store:
        assert {episode.id for episode in store.episodes()} == {episode.episode for episode in there.episodes}
    again = Evaluation(PARTS, "random", CHAT, run).run(resume=True)
    assert again.episodes == there.episodes


@pytest.mark.deep
def test_what_workers_cannot_do_is_refused(tmp_path: Path) -> None:
    workers = RayWorkers("explorer", CHAT, RayOptions(workers=1))
    assert (workers.name, workers.deterministic, workers.wants_info) == ("explorer", True, True)
    with pytest.raises(ConfigError, match="use run_many"):
        Harness(workers, CHAT).run(home())
    with pytest.raises(ConfigError, match="limits of a whole call"):
        Harness(workers, CHAT, total=Budget(turns=3))
    with pytest.raises(ConfigError, match="takes no weights"):
        workers.update_weights({}, "1")
    with pytest.raises(ConfigError, match=r"cannot be sent.*make_env"), (tmp_path / "open").open("w") as file:
        Harness(workers, CHAT).run_many(lambda: (file, home())[1], [0])
    with pytest.raises(ConfigError, match=r"cannot be sent.*engine that was made here.*name the policy"):
        RayWorkers(workers, CHAT)
    with pytest.raises(UnknownName, match=r"worker ray-\w+ on .*exprt"):
        Harness("exprt", CHAT, backend=RayOptions(workers=1))
    with pytest.raises(UnknownName, match=r"no_such_task"):
        Harness(workers, CHAT).run_many(home, ["no_such_task"])
    with pytest.raises(ConfigError, match=r"no node .*room.*expected: 1 CPUs and 4 GPUs"):
        RayWorkers("random", CHAT, RayOptions(gpus=4))
    workers.close()


def test_a_backend_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="did you mean ray"):
        Harness("random", CHAT, backend="rai")
    importlib.import_module("ray").shutdown()
    for address, words in (
        ("127.0.0.1:1", r"no Ray cluster.*127\.0\.0\.1:1.*refused.*ray start --head"),
        ("ray://127.0.0.1:1", "no address of a cluster"),
    ):
        with pytest.raises(ConfigError, match=words):
            Harness("random", CHAT, backend=RayOptions(address=address))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agentgym-tok\[ray\]'"):
        Harness("random", CHAT, backend="ray")
