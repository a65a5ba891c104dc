"""Evaluations from Python: parts, results that read back equal, going on, shards, and what made a score."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentgym_tok
from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.envs.searchqa import SearchQAEnv
from agentgym_tok.envs.webshop import WebShopEnv
from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing, UnknownName
from agentgym_tok.evaluate import Evaluation, Part, RunResults, Share
from agentgym_tok.evaluate.parts import choose
from agentgym_tok.evaluate.provenance import content_digest, policy_digest
from agentgym_tok.trace import TraceStore, verify
from agentgym_tok.trace.exchange.merge import merge

CHAT = ChatFormat.builtin()
PARTS = (
    Part("home", lambda: ALFWorldEnv(CHAT, split="valid_seen", max_steps=6), episodes=5, samples=3, world="alfworld"),
    Part("shop", lambda: WebShopEnv(CHAT, split="eval", max_steps=4), episodes=4),
)


def evaluation(folder: Path, policy: str = "random", **options: Any) -> Evaluation:
    return Evaluation(PARTS, policy, CHAT, folder, **options)


def told(results: RunResults) -> list[dict[str, Any]]:
    """Return what of results is the same in every process."""
    return [episode.model_dump(exclude={"episode"}) for episode in results.episodes]


def test_results_are_written_and_read_back_equal(tmp_path: Path) -> None:
    results = evaluation(tmp_path).run()
    assert RunResults.read(tmp_path) == RunResults.read(tmp_path / "results.json") == results
    home, shop = results.parts
    assert (home.name, home.world, home.source, home.tasks, home.samples) == (
        "home",
        "alfworld",
        "ALFWorld-synth",
        5,
        3,
    )
    assert (shop.world, shop.samples, shop.metrics) == ("WebShopEnv", 1, {"score": "score"})
    assert home.seed != shop.seed
    assert [episode.replica for episode in results.of_part("home")] == [0, 1, 2] * 5
    assert {(line.part, line.k) for line in results.passes} == {("home", 1), ("home", 2), ("home", 3)}
    assert {cost.part for cost in results.costs} == {"home", "shop"}
    assert results.source == "ALFWorld-synth, WebShop-synth"
    with TraceStore(tmp_path, mode="r") as store:
        assert {episode.id for episode in store.episodes()} == {episode.episode for episode in results.episodes}
        assert store.meta.config == results.config
    assert not verify(tmp_path).breaches


def test_seeds_draw_tasks_and_turns(tmp_path: Path) -> None:
    one, same, other = (evaluation(tmp_path / str(n), seed=seed).run() for n, seed in enumerate((1, 1, 2)))
    assert told(one) == told(same) != told(other)
    assert [part.data_digest for part in one.parts] == [part.data_digest for part in same.parts]
    assert {episode.task for episode in one.episodes} != {episode["task"] for episode in told(other)}


@given(st.integers(1, 30), st.integers(0, 5), st.data())
def test_fewer_tasks_are_some_of_more(size: int, seed: int, data: st.DataObject) -> None:
    tasks = [f"t{n}" for n in range(size)]
    more = data.draw(st.integers(1, size))
    chosen, fewer = choose(tasks, more, seed), choose(tasks, data.draw(st.integers(1, more)), seed)
    assert set(fewer) <= set(chosen) <= set(choose(tasks, None, seed)) == set(tasks)
    assert len(set(chosen)) == more
    assert chosen == sorted(chosen, key=tasks.index)


def test_shards_make_the_results_of_a_plain_run(tmp_path: Path) -> None:
    plain = evaluation(tmp_path / "plain").run()
    for number in (1, 2, 3):
        evaluation(tmp_path / "one").run_share(Share(number, 3))
        evaluation(tmp_path / f"machine{number}").run_share(Share(number, 3))
    assert not (tmp_path / "one" / "results.json").exists()
    gathered = evaluation(tmp_path / "one").run(resume=True)
    merge([tmp_path / f"machine{number}" for number in (1, 2, 3)], tmp_path / "merged")
    merged = evaluation(tmp_path / "merged").run(resume=True)
    # What was merged of runs that were begun otherwise is no run of either.
    evaluation(tmp_path / "other", seed=9).run_share(Share(2, 3))
    merge([tmp_path / "machine1", tmp_path / "other"], tmp_path / "mixed")
    with pytest.raises(ConfigError, match=r"begun with another seed.*got: 0; expected: 9"):
        evaluation(tmp_path / "mixed").run(resume=True)
    assert told(plain) == told(gathered) == told(merged)
    assert merged.scores == plain.scores
    with TraceStore(tmp_path / "one", mode="r") as store:
        assert len(store) == len(plain.episodes)
    # A share that nobody played is played by whoever makes the results.
    evaluation(tmp_path / "part").run_share(Share(2, 3))
    assert told(evaluation(tmp_path / "part").run(resume=True)) == told(plain)


def test_a_folder_is_begun_once_and_goes_on_as_it_was_begun(tmp_path: Path) -> None:
    evaluation(tmp_path / "run").run_share(Share(1, 2))
    with pytest.raises(ConfigError, match=r"not empty.*--resume"):
        evaluation(tmp_path / "run").run()
    with pytest.raises(ConfigError, match="not empty"):
        evaluation(tmp_path / "run").run_share(Share(1, 2))
    with pytest.raises(ConfigError, match=r"begun with another policy.*got: 'expert'; expected: 'random'"):
        evaluation(tmp_path / "run", "expert").run_share(Share(2, 2))
    with pytest.raises(ConfigError, match="begun with another seed"):
        evaluation(tmp_path / "run", seed=5).run(resume=True)
    with pytest.raises(ConfigError, match="no run to go on with"):
        evaluation(tmp_path / "nothing").run(resume=True)
    evaluation(tmp_path / "run", concurrency=1).run(resume=True)


def test_what_failed_has_ended_and_is_scored_without_the_policy(tmp_path: Path) -> None:
    part = Part("search", lambda: SearchQAEnv(CHAT, split="test"), episodes=2)  # which lists no admissible commands
    failed = Evaluation([part], "random", CHAT, tmp_path, config={}).run()
    assert all(episode.failure is not None for episode in failed.episodes)
    again = Evaluation([part], "python:no_such_module:policy", CHAT, tmp_path, config={}).run(resume=True)
    assert again.episodes == failed.episodes
    assert again.costs == failed.costs


def test_a_policy_that_cannot_be_loaded_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        evaluation(tmp_path / "run", "exprt").run()
    assert not (tmp_path / "run").exists()


def test_parts_need_names_and_shares_need_numbers(tmp_path: Path) -> None:
    for parts in ((), (PARTS[0], PARTS[0])):
        with pytest.raises(ConfigError, match="names of their own"):
            Evaluation(parts, "random", CHAT, tmp_path)
    assert Share.parse("2/3").take("abcdefg") == "be"
    for text in ("0/3", "4/3", "1", "1/0", "a/b"):
        with pytest.raises(ConfigError, match=r"no share.*expected: 1/4"):
            Share.parse(text)


def test_files_that_are_no_results_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"no results.*next: .*--resume"):
        RunResults.read(tmp_path)
    evaluation(tmp_path / "run").run()
    file = tmp_path / "run" / "results.json"
    written = json.loads(file.read_text())
    for broken, words in (
        ({**written, "schema_version": 1}, "schema_version"),
        ({**written, "seconds": -1}, "seconds"),
    ):
        file.write_text(json.dumps(broken))
        with pytest.raises(DataCorrupt, match=words):
            RunResults.read(file)
    file.write_bytes(b"\xff")
    with pytest.raises(DataCorrupt, match="no results that this version reads"):
        RunResults.read(file)


def test_a_score_says_what_made_it(tmp_path: Path) -> None:
    results = evaluation(tmp_path).run()
    made_by = results.made_by
    assert (results.library, results.fingerprint) == (agentgym_tok.__version__, CHAT.fingerprint)
    assert (made_by.content,) == made_by.begun_with == (content_digest(),)
    assert made_by.packages["numpy"]
    assert made_by.packages["pydantic"]
    assert "ruff" not in made_by.packages
    assert len(made_by.configuration) == 64


def test_the_digest_of_a_policy_is_that_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "expert",
        "hf:nobody/nothing",
        "vllm:http://127.0.0.1:1#m",
        "python:no_such_module:f",
        "python:no_such.module:f",
    ):
        assert policy_digest(name) is None
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"1")
    (tmp_path / "a_policy.py").write_text("def f(ids): return ids\n")
    monkeypatch.syspath_prepend(tmp_path)
    one = policy_digest(f"hf:{tmp_path / 'model'}?device=cpu")
    code = policy_digest("python:a_policy:f")
    assert one is not None
    assert code is not None
    (tmp_path / "model" / "weights").write_bytes(b"2")
    assert policy_digest(f"hf:{tmp_path / 'model'}") not in {one, None}
    assert policy_digest("python:a_policy:f") == code
    assert policy_digest(f"llamacpp:{tmp_path / 'a_policy.py'}") == code
