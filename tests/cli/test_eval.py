"""`agentgym-tok eval CONFIG.toml`: parts, overrides, shards, and runs that are killed and go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.cli.config_file import preset_names
from agentgym_tok.cli.evaluate import PRESETS, Options, run
from agentgym_tok.cli.main import main
from agentgym_tok.cli.options import parse
from agentgym_tok.errors import ConfigError, DataMissing, UnknownName
from agentgym_tok.evaluate import RunResults
from agentgym_tok.trace import TraceStore

Capture = pytest.CaptureFixture[str]

THREE = """
policy = "explorer"
episodes = 4
max_context = 9000
sampling = { temperature = 0.4, max_tokens = 300 }

[[tasks]]
world = "alfworld"
split = "valid_unseen"
samples = 2

[[tasks]]
world = "webshop"
max_steps = 12
env = { goals = "human" }
sampling = { max_tokens = 64 }

[[tasks]]
name = "search"
world = "searchqa"
prompting = "search_r1"
episodes = 3
"""

ERRING = """
import os, time
from agentgym_tok import ChatFormat
from agentgym_tok.policies.expert import ExplorerPolicy

class Erring(ExplorerPolicy):
    def answer(self, request):
        time.sleep(float(os.environ.get("ERRING_SECONDS", "0")))
        if request.seed % 4 == 0:
            return super().answer(type(request)(request.ids_T, info={"explorer": "I am lost."}))
        return super().answer(request)

policy = Erring(ChatFormat.builtin())
"""


def options(*arguments: str) -> Options:
    return parse(Options, [*arguments], program="agentgym-tok eval")


@pytest.fixture
def three(tmp_path: Path) -> Path:
    (tmp_path / "three.toml").write_text(THREE, encoding="utf-8")
    return tmp_path / "three.toml"


def told(folder: Path) -> list[dict[str, Any]]:
    return [episode.model_dump(exclude={"episode"}) for episode in RunResults.read(folder).episodes]


def test_all_worlds_are_played_in_one_run(three: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["eval", str(three), "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    for title in (
        "explorer on ALFWorld-synth valid_unseen, transcript",
        "explorer on WebShop-synth eval, transcript",
        "explorer on SearchQA-synth test, search_r1",
        "of k samples of a task",
        "cost",
    ):
        assert title in out
    results = RunResults.read(tmp_path / "run")
    assert [(part.name, part.tasks, part.samples) for part in results.parts] == [
        ("alfworld", 4, 2),
        ("webshop", 4, 1),
        ("search", 3, 1),
    ]
    assert {score.part: score.n for score in results.scores if score.label == "All"} == {
        "alfworld": 8,
        "webshop": 4,
        "search": 3,
    }
    assert "| explorer |" in (tmp_path / "run" / "table.md").read_text()
    assert main(["trace", "verify", str(tmp_path / "run")]) == 0
    assert "every law holds" in capsys.readouterr().out


def test_parts_take_what_they_do_not_say_from_above_and_options_lie_over_both(three: Path) -> None:
    home, shop, search = options(str(three)).parts()
    assert (home.sampling.temperature, home.sampling.max_tokens, home.episodes) == (0.4, 300, 4)
    assert (shop.sampling.temperature, shop.sampling.max_tokens, shop.max_steps) == (0.4, 64, 12)
    assert (home.max_steps, shop.split, search.split, search.episodes) == (None, "eval", "test", 3)
    assert {part.max_context for part in (home, shop, search)} == {9000}
    assert (shop.env, search.env) == ({"goals": "human"}, {})
    given = options(str(three), "--episodes", "2", "--sampling.max-tokens=9", "--policy", "random", "--seed", "3")
    assert [part.episodes for part in given.parts()] == [2, 2, 2]
    assert [(part.sampling.temperature, part.sampling.max_tokens) for part in given.parts()] == [(0.4, 9)] * 3
    assert (given.policy, given.seed, given.world) == ("random", 3, "alfworld, webshop, searchqa")


def test_a_file_without_parts_is_one_world(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('world = "webshop"\nepisodes = 2\n')
    (part,) = options(str(tmp_path / "one.toml"), "--max-steps", "5").parts()
    assert (part.name, part.world, part.split, part.episodes, part.max_steps) == ("webshop", "webshop", "eval", 2, 5)


def test_a_part_gives_what_the_world_alone_gives(three: Path, tmp_path: Path) -> None:
    assert main(["eval", str(three), "--policy", "random", "--samples", "1", "--out", str(tmp_path / "all")]) == 0
    alone = ["--policy", "random", "--episodes", "4", "--split", "valid_unseen", "--max-context", "9000"]
    assert main(["eval", "alfworld", *alone, "--out", str(tmp_path / "one")]) == 0
    assert [episode for episode in told(tmp_path / "all") if episode["part"] == "alfworld"] == told(tmp_path / "one")


def test_the_plan_shows_the_configuration_and_the_tasks_and_plays_nothing(
    three: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["eval", str(three), "--dry-run", "--policy", "hf:no/such/model", "--out", str(tmp_path / "run")]) == 0
    shown, _, tasks = capsys.readouterr().out.rpartition("}")
    assert [part["name"] for part in json.loads(shown + "}")["tasks"]] == ["alfworld", "webshop", "search"]
    assert "4 tasks of WebShop-synth, the first: " in tasks
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", preset_names(PRESETS))
def test_presets_are_configurations(name: str) -> None:
    parts = options(f"preset:{name}").parts()
    assert {part.world for part in parts} == {"alfworld", "webshop", "searchqa"}


def test_wrong_usage_says_what_was_expected(three: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("policy = ", encoding="utf-8")
    (tmp_path / "chats.toml").write_text('chat = "a"\n[[tasks]]\nworld = "alfworld"\nchat = "b"\n')
    (tmp_path / "typo.toml").write_text('[[tasks]]\nworld = "alfworld"\nepisods = 3\n')
    (tmp_path / "twice.toml").write_text('[[tasks]]\nworld = "alfworld"\n[[tasks]]\nworld = "alfworld"\n')
    with pytest.raises(ConfigError, match="no toml"):
        options(str(tmp_path / "broken.toml"))
    with pytest.raises(ConfigError, match="one chat format, and part alfworld names another"):
        options(str(tmp_path / "chats.toml"))
    with pytest.raises(ConfigError, match=r"tasks\.0\.episods"):
        options(str(tmp_path / "typo.toml"))
    with pytest.raises(DataMissing, match=r"presets are .*three-worlds"):
        options(str(tmp_path / "absent.toml"))
    with pytest.raises(UnknownName, match="did you mean three-worlds"):
        options("preset:three-world")
    with pytest.raises(ConfigError, match=r"names of their own.*alfworld, alfworld"):
        run(options(str(tmp_path / "twice.toml"), "--out", str(tmp_path / "run")))
    with pytest.raises(ConfigError, match=r"which run goes on.*next: name its folder"):
        run(options(str(three), "--resume"))
    with pytest.raises(ConfigError, match="no share of the tasks"):
        run(options(str(three), "--shard", "3/2"))


def test_shards_and_a_merged_trace_are_scored_together(three: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["eval", str(three), "--out", str(tmp_path / "plain")]) == 0
    for shard in ("1/2", "2/2"):
        assert main(["eval", str(three), "--shard", shard, "--out", str(tmp_path / shard[0])]) == 0
    assert "shard 2/2 is played; when all are" in capsys.readouterr().out
    merged = str(tmp_path / "merged")
    assert main(["trace", "merge", str(tmp_path / "1"), str(tmp_path / "2"), "--out", merged]) == 0
    assert main(["eval", str(three), "--resume", "--out", merged]) == 0
    assert told(tmp_path / "merged") == told(tmp_path / "plain")


def test_a_run_that_is_killed_and_goes_on_has_the_results_of_one_that_is_not(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "erring.py").write_text(ERRING, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    command = ["eval", str(three), "--policy", "python:erring:policy", "--concurrency", "3", "--out"]
    assert main([*command, str(tmp_path / "whole")]) == 0
    code = "import sys; from agentgym_tok.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ERRING_SECONDS": "0.02"}
    for more, ended in (([], 3), (["--resume"], 7)):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *command, str(tmp_path / "killed"), *more],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and episodes_ended(tmp_path / "killed") < ended:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "results.json").exists()
    assert main([*command, str(tmp_path / "killed"), "--resume"]) == 0
    assert told(tmp_path / "killed") == told(tmp_path / "whole")
    assert 0 < sum(episode["success"] for episode in told(tmp_path / "whole")) < len(told(tmp_path / "whole"))
    assert RunResults.read(tmp_path / "killed").scores == RunResults.read(tmp_path / "whole").scores
    assert main(["trace", "verify", str(tmp_path / "killed")]) == 0
    # What is on record is scored without the policy.
    (tmp_path / "erring.py").write_text("raise RuntimeError")
    del sys.modules["erring"]
    assert main([*command, str(tmp_path / "killed"), "--resume"]) == 0
    assert told(tmp_path / "killed") == told(tmp_path / "whole")


def episodes_ended(folder: Path) -> int:
    if not (folder / "shards" / "main.sqlite").exists():
        return 0
    try:
        with TraceStore(folder, mode="r") as store:
            return sum(status in {"done", "failed"} for _, status in store.heads())
    except Exception:  # noqa: BLE001  # the other process is just making it
        return 0
