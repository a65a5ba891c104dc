"""`agentgym-tok compare`: for people, for papers and for programs."""

import json
from pathlib import Path

import pytest

from agentgym_tok.cli.main import main
from agentgym_tok.evaluate import Comparison, RunResults, compare

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of one split: two policies, and one with less tasks."""
    folder = tmp_path_factory.mktemp("runs")
    for name, policy, episodes in (("a/random", "random", 8), ("b/explorer", "explorer", 8), ("b/few", "explorer", 4)):
        options = ["--policy", policy, "--episodes", str(episodes), "--max-steps", "20", "--out", str(folder / name)]
        assert main(["eval", "alfworld", *options]) == 0
    return folder


def test_text_names_figures_flips_and_what_was_set(runs: Path, capsys: Capture) -> None:
    assert main(["compare", str(runs / "a/random"), str(runs / "b/explorer"), "--flips", "2"]) == 0
    out = capsys.readouterr().out
    assert "first: random\nsecond: explorer" in out
    assert "alfworld: ALFWorld-synth, 8 pairs" in out
    assert "exact McNemar p 0.0" in out
    assert 'differs: policy: "random", now "explorer"' in out
    assert out.count("gained: ") == 3
    assert " more" in out
    # Each named episode is one that `trace show` finds.
    line = next(line for line in out.splitlines() if line.startswith("gained: "))
    before, after = line.rpartition(": episode ")[2].split(", now ")
    for run, episode in (("a/random", before), ("b/explorer", after)):
        assert main(["trace", "show", str(runs / run), "--episode", episode]) == 0


def test_json_is_what_python_gives(runs: Path, capsys: Capture) -> None:
    one, two = runs / "a/random", runs / "b/explorer"
    assert main(["compare", str(one), str(two / "results.json"), "--output", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    expected = compare(RunResults.read(one), RunResults.read(two), names=("random", "explorer"))
    assert Comparison.model_validate(found) == expected


def test_markdown_begins_with_the_table_of_all_runs(runs: Path, capsys: Capture) -> None:
    folders = [str(runs / name) for name in ("b/explorer", "a/random", "b/few")]
    assert main(["compare", *folders, "--common", "--output", "markdown"]) == 0
    out = capsys.readouterr().out
    table = [line for line in out.partition("\n\n")[0].splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in table] == ["| ", "| ---", "| explorer", "| random", "| few"]
    assert out.count("# ") - out.count("## ") == 2
    assert "- 4 episodes that only one run has are left out" in out
    assert "| All | success | 8 |" in out


def test_runs_that_cannot_be_compared_say_why(runs: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["compare", str(runs / "b/explorer"), str(runs / "b/few")]) == 2
    assert "compare the common ones by --common" in capsys.readouterr().err
    assert main(["compare", str(runs / "b/few"), str(runs / "b/few")]) == 2
    assert "compared with itself" in capsys.readouterr().err
    assert main(["compare", str(runs / "b/few"), str(tmp_path)]) == 1
    assert "there are no results" in capsys.readouterr().err
    assert main(["compare", str(runs / "b/few")]) == 2


def test_one_world_is_compared_with_the_same_part_of_a_file(runs: Path, tmp_path: Path, capsys: Capture) -> None:
    parts = "".join(f'[[tasks]]\nworld = "{world}"\n' for world in ("alfworld", "webshop"))
    (tmp_path / "two.toml").write_text(f'policy = "explorer"\nepisodes = 4\nmax_steps = 20\n{parts}')
    assert main(["eval", str(tmp_path / "two.toml"), "--out", str(tmp_path / "two")]) == 0
    capsys.readouterr()
    assert main(["compare", str(runs / "b/few"), str(tmp_path / "two"), "--common"]) == 0
    differing = [line for line in capsys.readouterr().out.splitlines() if line.startswith("differs: ")]
    assert [line.split(": ")[1] for line in differing] == ["tasks.webshop"]


def test_runs_of_one_name_are_told_apart_by_their_folders(runs: Path, tmp_path: Path, capsys: Capture) -> None:
    for run, other in (("x/run", "a/random"), ("y/run", "b/explorer")):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "results.json").write_bytes((runs / other / "results.json").read_bytes())
    assert main(["compare", str(tmp_path / "x/run"), str(tmp_path / "y/run")]) == 0
    assert "first: x/run\nsecond: y/run" in capsys.readouterr().out
