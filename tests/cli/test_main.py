"""Commands: what they print, what they write, and how they fail."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agentgym_tok
from agentgym_tok.cli.main import COMMANDS, main
from agentgym_tok.trace import TraceStore

Capture = pytest.CaptureFixture[str]


def evaluate(folder: Path, *options: str, policy: str = "expert", episodes: int = 12) -> int:
    return main(
        ["eval", "alfworld", "--policy", policy, "--episodes", str(episodes), "--out", str(folder / "run"), *options]
    )


def test_eval_scores_writes_results_and_a_trace_that_verifies(tmp_path: Path, capsys: Capture) -> None:
    assert evaluate(tmp_path) == 0
    out = capsys.readouterr().out
    assert "expert on ALFWorld-synth valid_seen, transcript" in out
    assert "100.0 %" in out
    written = json.loads((tmp_path / "run" / "results.json").read_text())
    scores = {score["label"]: score for score in written["scores"]}
    assert (scores["All"]["n"], scores["All"]["success"]) == (12, 1.0)
    assert written["source"] == "ALFWorld-synth"
    assert written["library"] == agentgym_tok.__version__
    assert written["config"]["policy"] == "expert"
    with TraceStore(tmp_path / "run", mode="r") as store:
        assert {episode.id for episode in store.episodes()} == {episode["episode"] for episode in written["episodes"]}
        assert store.meta.config["episodes"] == 12
    assert main(["trace", "verify", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "accounting sft: 100.0 %" in out
    assert "every law holds" in out


@pytest.mark.parametrize("prompting", ["transcript", "step", "react"])
def test_the_explorer_plays_in_every_prompting(tmp_path: Path, prompting: str) -> None:
    assert evaluate(tmp_path, "--prompting", prompting, policy="explorer", episodes=4) == 0
    written = json.loads((tmp_path / "run" / "results.json").read_text())
    assert next(score["success"] for score in written["scores"] if score["label"] == "All") == 1.0
    assert main(["trace", "verify", str(tmp_path / "run")]) == 0


def test_without_a_policy_the_weights_that_ship_play(tmp_path: Path, capsys: Capture) -> None:
    out = str(tmp_path / "run")
    assert main(["eval", "alfworld", "--episodes", "6", "--sampling.temperature", "0", "--out", out]) == 0
    assert "builtin on ALFWorld-synth valid_seen, transcript" in capsys.readouterr().out
    written = json.loads((tmp_path / "run" / "results.json").read_text())
    assert next(score["success"] for score in written["scores"] if score["label"] == "All") > 0.5


def test_the_same_seed_gives_the_same_results(tmp_path: Path) -> None:
    def results(name: str, seed: int) -> list[Any]:
        assert evaluate(tmp_path / name, "--seed", str(seed), "--concurrency", "3", policy="random", episodes=5) == 0
        episodes = json.loads((tmp_path / name / "run" / "results.json").read_text())["episodes"]
        return [{**episode, "episode": ""} for episode in episodes]

    assert results("a", 1) == results("b", 1) != results("c", 2)


def test_episodes_are_drawn_by_the_seed_without_repetition(tmp_path: Path, capsys: Capture) -> None:
    def first(seed: int) -> str:
        assert evaluate(tmp_path, "--dry-run", "--seed", str(seed)) == 0
        return capsys.readouterr().out.splitlines()[-1]

    assert first(1) == first(1) != first(2)
    assert not (tmp_path / "run").exists()
    assert first(1).startswith("12 tasks of ALFWorld-synth")


def test_a_run_is_never_written_over_another(tmp_path: Path, capsys: Capture) -> None:
    assert evaluate(tmp_path, episodes=1) == 0
    assert evaluate(tmp_path, episodes=1) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_options_come_from_a_file_and_then_from_the_command(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "eval.toml"
    file.write_text('policy = "random"\nmax_steps = 4\n[sampling]\ntemperature = 0.4\n')
    options = ["--config", str(file), "--sampling.temperature", "0.7", "--dry-run"]
    assert main(["eval", "alfworld", *options]) == 0
    config = json.loads(capsys.readouterr().out.rpartition("}")[0] + "}")
    assert (config["policy"], config["max_steps"], config["sampling"]["temperature"]) == ("random", 4, 0.7)


def test_the_environment_changes_no_option(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("SPLIT", "train")
    monkeypatch.setenv("SEED", "77")
    assert main(["eval", "alfworld", "--dry-run"]) == 0
    config = json.loads(capsys.readouterr().out.rpartition("}")[0] + "}")
    assert (config["split"], config["seed"]) == ("valid_seen", 0)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["evl"], 2, "did you mean eval"),
        (["trace", "veryfy", "x"], 2, "did you mean trace verify"),
        (["eval", "alfwrld"], 2, "did you mean alfworld"),
        (["eval", "alfworld", "--policy", "exprt"], 2, "did you mean expert"),
        (["eval", "alfworld", "--split", "valid_unsen"], 2, "did you mean valid_unseen"),
        (["eval", "searchqa", "--prompting", "search_r1"], 2, "name another policy"),
        (["eval", "openenv", "--env", "url=http://127.0.0.1:9"], 2, "name another policy"),
        (["eval", "alfworld", "--episodes", "0"], 2, "greater than or equal to 1"),
        (["eval", "alfworld", "--episodes", "many"], 2, "valid integer"),
        (["eval", "alfworld", "--sampling.top-p", "2"], 2, "sampling.top-p"),
        (["eval", "alfworld", "--nonsense"], 2, "--nonsense"),
        (["eval", "alfworld", "--env", '{"colour": 1}'], 2, "does not know an option"),
        (["eval", "alfworld", "--config", "no_such.toml"], 1, "not there"),
        (["eval", "alfworld", "--chat", "no/such/folder", "--dry-run"], 1, "no tokenizer"),
        (["trace", "verify", "no_such_run"], 1, "no trace"),
        (["trace", "show", "no_such_run"], 1, "no trace"),
    ],
)
def test_mistakes_are_named_with_their_status(
    arguments: list[str], status: int, words: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(arguments) == status
    assert words in capsys.readouterr().err


def test_missing_official_games_say_the_command_that_gets_them(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    assert main(["eval", "alfworld", "--source", "official"]) == 1
    assert "agentgym-tok data get alfworld" in capsys.readouterr().err


def test_a_broken_trace_fails_verification(tmp_path: Path, capsys: Capture) -> None:
    import sqlite3

    assert evaluate(tmp_path, episodes=2) == 0
    shard = sqlite3.connect(tmp_path / "run" / "shards" / "main.sqlite")
    with shard:
        shard.execute("UPDATE turns SET reward = reward + 1")
    shard.close()
    capsys.readouterr()
    assert main(["trace", "verify", str(tmp_path / "run")]) == 1
    assert "NOT verified" in capsys.readouterr().out
    assert main(["trace", "verify", str(tmp_path / "run"), "--output", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["breaches"]


def test_a_law_that_was_not_tried_is_not_said_to_hold(tmp_path: Path, capsys: Capture) -> None:
    assert evaluate(tmp_path, episodes=2) == 0
    with TraceStore(tmp_path / "run", mode="r") as store:
        episodes = list(store.episodes())
        meta = store.meta.model_copy(update={"chat": "nowhere/gone", "recipe": {"path_or_id": "nowhere/gone"}})
    with TraceStore(tmp_path / "moved", meta=meta) as store:
        for episode in episodes:
            store.begin(episode.head)
            for turn in episode.turns:
                store.append(turn)
    capsys.readouterr()
    assert main(["trace", "verify", str(tmp_path / "moved")]) == 0
    out = capsys.readouterr().out
    assert "law 4 was NOT tried" in out
    assert "2 episodes are still running" in out
    assert main(["trace", "verify", str(tmp_path / "moved"), "--chat", "builtin"]) == 0
    assert "every law holds" in capsys.readouterr().out


def test_a_trace_of_another_tokenizer_is_refused(tmp_path: Path, shared: Path, capsys: Capture) -> None:
    import tarfile

    with tarfile.open(shared / "tokenizers" / "qwen2_5.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert evaluate(tmp_path, episodes=1) == 0
    assert main(["trace", "verify", str(tmp_path / "run"), "--chat", str(tmp_path / "qwen2_5")]) == 1
    assert "another chat format" in capsys.readouterr().err


def test_show_lists_episodes_and_turns_without_a_tokenizer(tmp_path: Path, capsys: Capture) -> None:
    assert evaluate(tmp_path, episodes=3) == 0
    capsys.readouterr()
    assert main(["trace", "show", str(tmp_path / "run"), "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert "3 episodes" in out
    assert "1 more" in out
    with TraceStore(tmp_path / "run", mode="r") as store:
        episode = next(store.episodes())
    assert main(["trace", "show", str(tmp_path / "run"), "--episode", episode.id[:12]]) == 0
    out = capsys.readouterr().out
    assert "turn 0.0  fresh_prompt" in out
    assert "'action'·" in out
    assert main(["trace", "show", str(tmp_path / "run"), "--episode", "zzz"]) == 2


def test_play_shows_spans_and_ids(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("look\n\ninventory\nquit\n"))
    assert main(["play", "alfworld", "--task", "3"]) == 0
    out = capsys.readouterr().out
    assert "look·" in out
    assert "inventory\n" in out
    assert "carrying·" in out
    monkeypatch.setattr(sys, "stdin", io.StringIO("look\nlook\n"))
    assert main(["play", "alfworld", "--max-steps", "2", "--no-ids"]) == 0
    assert "over (steps)" in capsys.readouterr().out


def test_bench_measures_and_writes_figures(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "bench.json"
    assert main(["bench", "alfworld", "--seconds", "0.05", "--out", str(file)]) == 0
    figures = json.loads(file.read_text())["figures"]
    assert figures["engine steps/s"] > 0
    assert figures["token steps/s, builtin, transcript"] > 0
    assert "engine clone" in capsys.readouterr().out


def test_bench_chat_shows_that_each_new_token_is_encoded_once(tmp_path: Path) -> None:
    from agentgym_tok import ChatFormat
    from agentgym_tok.cli.bench_chat import measure

    chat = ChatFormat.builtin()
    short, long = measure(chat, 8, 2000), measure(chat, 32, 8000)
    for turns, figures in ((8, short), (32, long)):
        # New are all tokens but the first prompt and the sampled ones; each bridge encodes one stop token more.
        assert figures["tokens encoded by bridges"] < figures["tokens of the last context"]
        assert figures["tokens encoded by renderings"] > figures["tokens of the last context"] * turns / 4
    assert long["tokens encoded by bridges"] / short["tokens encoded by bridges"] == pytest.approx(4, rel=0.05)
    assert long["tokens encoded by renderings"] / short["tokens encoded by renderings"] > 12
    assert main(["bench", "chat", "--turns", "4", "--tokens", "1000", "--out", str(tmp_path / "chat.json")]) == 0
    assert json.loads((tmp_path / "chat.json").read_text())["figures"]["tokens encoded by bridges"] > 0


def test_generated_games_are_read_back_as_files(tmp_path: Path, capsys: Capture) -> None:
    options = ["--folder", str(tmp_path), "--split", "valid_seen", "--count", "4"]
    assert main(["data", "generate", "alfworld", *options]) == 0
    assert "4 games" in capsys.readouterr().out
    out = str(tmp_path / "run")
    expert = ["--policy", "expert", "--out", out]
    assert main(["eval", "alfworld", "--source", "official", "--data", str(tmp_path), *expert]) == 0
    written = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (written["scores"][-1]["n"], written["scores"][-1]["success"]) == (4, 1.0)
    assert written["source"] == "ALFWorld-synth"


def test_list_and_help_name_everything(capsys: Capture) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "agentgym_tok/ALFWorld-v0" in out
    assert "expert" in out
    assert main([]) == main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == agentgym_tok.__version__
    for name in COMMANDS:
        assert main([*name.split(), "--help"]) == 0
        assert "usage: agentgym-tok" in capsys.readouterr().out


def test_the_program_itself_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentgym_tok.cli.main", "list"], capture_output=True, text=True, check=True
    )
    assert "ALFWorld" in done.stdout
