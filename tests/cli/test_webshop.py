"""WebShop on the command line: generate, prepare, evaluate, bench, list."""

import json
from pathlib import Path

import pytest

from agentgym_tok.cli.main import main
from agentgym_tok.cli.progress import Amounts
from agentgym_tok.trace import TraceStore

Capture = pytest.CaptureFixture[str]


def test_a_generated_shop_is_written_prepared_and_evaluated(tmp_path: Path, capsys: Capture) -> None:
    raw, shops = tmp_path / "raw", tmp_path / "shops"
    assert main(["data", "generate", "webshop", "--products", "30", "--out", str(raw)]) == 0
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert command[0] == "agentgym-tok"
    assert main([*command[1:], "--out", str(shops)]) == 0
    out = capsys.readouterr().out
    assert "WebShop-synth: 30 products, " in out
    assert f"export WEBSHOP_DATA={shops}" in out
    options = ["--data", str(shops), "--split", "all", "--policy", "expert", "--episodes", "4"]
    assert main(["eval", "webshop", *options, "--out", str(tmp_path / "run")]) == 0
    assert "expert on WebShop-synth all, transcript" in capsys.readouterr().out


def test_eval_prints_score_and_success_with_intervals(tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run"
    options = ["--policy", "random", "--prompting", "step", "--env", '{"goals": "human", "preset": "original"}']
    assert main(["eval", "webshop", "--episodes", "12", "--split", "test", "--out", str(run), *options]) == 0
    out = capsys.readouterr().out
    assert "random on WebShop-synth test, step" in out
    assert out.count("95 % interval") == 2
    (score,) = json.loads((run / "results.json").read_text())["scores"]
    with TraceStore(run, mode="r") as store:
        rewards = [episode.return_ for episode in store.episodes()]
    mean = score["metrics"]["score"]
    assert score["label"] == "All"
    assert mean["mean"] == pytest.approx(sum(rewards) / 12)
    assert mean["low"] < mean["mean"] < mean["high"]
    assert score["success"] == sum(reward == 1 for reward in rewards) / 12
    assert main(["trace", "verify", str(run)]) == 0


def test_bench_measures_the_small_shop_and_a_larger_one(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "figures.json"
    assert main(["bench", "webshop", "--products", "200", "--out", str(file)]) == 0
    figures = json.loads(file.read_text())["figures"]
    assert {"engine steps/s", "engine reset, us", "search, median ms", "200 products: open, s of the clock"} <= set(
        figures
    )
    assert all(figure > 0 for figure in figures.values())
    assert "engine steps/s" in capsys.readouterr().out


def test_list_names_the_world_and_its_presets(capsys: Capture) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "agentgym_tok/WebShop-v0" in out
    assert "split presets of webshop: original, canonical, verl-agent" in out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["data", "prepare", "webshop", "--items", "no_such.json", "--ins", "x"], 1, "no_such.json"),
        (["data", "prepare", "webshp", "--items", "x"], 2, "did you mean data prepare webshop"),
        (["data", "prepare", "webshop"], 2, "items"),
        (["data", "generate", "webshop", "--out", ".", "--products", "3"], 2, "there already"),
        (["data", "generate", "webshop", "--out", "x", "--products", "0"], 2, "greater than or equal to 1"),
        (["eval", "webshop", "--split", "valid_seen"], 2, "unknown split"),
        (["eval", "webshop", "--source", "official", "--data", "no_such_folder"], 1, "data prepare webshop"),
    ],
)
def test_mistakes_are_named_with_their_status(arguments: list[str], status: int, words: str, capsys: Capture) -> None:
    assert main(arguments) == status
    assert words in capsys.readouterr().err


def test_long_work_says_a_line_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Amounts() as amounts:
        for done in range(0, 40, 4):
            now[0] = float(done)
            amounts.show("products", done * 1000, 40_000)
        now[0] = 60.0
        amounts.show("titles", 5, None)
    assert capsys.readouterr().err.splitlines() == [
        "products: 12,000 of 40,000",
        "products: 24,000 of 40,000",
        "products: 36,000 of 40,000",
        "titles: 5",
    ]
