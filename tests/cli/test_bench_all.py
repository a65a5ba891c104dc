"""`bench all`: one table of all figures, each beside its peer of the same run, whatever fails or is missing."""

import json
import re
from pathlib import Path

import pytest

from agentgym_tok.cli import bench_all
from agentgym_tok.cli.bench_parts import PARTS, Part, Peer
from agentgym_tok.cli.main import COMMANDS, main
from agentgym_tok.errors import UnknownName

ROOT = Path(__file__).parents[2]


def test_every_benchmark_is_a_part() -> None:
    known = {" ".join(part.command[:2]) for part in PARTS}
    commands = {name for name in COMMANDS if name.startswith("bench ") and name != "bench all"}
    assert commands | {"bench alfworld"} == known


def test_every_benchmark_that_the_documentation_names_is_a_part() -> None:
    known = {" ".join(part.command[:2]) for part in PARTS} | {"bench all"}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"agentgym-tok (bench [a-z]+)", page.read_text())}
    assert named, "no page names a benchmark"
    assert named <= known


def test_parts_have_names_of_their_own() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_figures_stand_beside_those_of_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "chat", "--only", "searchqa", "--quick", "--out", str(tmp_path)]
    assert main(["bench", "all", *options]) == 0
    written = json.loads((tmp_path / "figures.json").read_text())
    parts = {part["name"]: part for part in written["parts"]}
    assert list(parts) == ["searchqa", "chat"]
    figures = parts["chat"]["figures"]
    times = figures["CPU ms a turn, renderings"] / figures["CPU ms a turn, bridges"]
    assert {"figure": "CPU ms a turn, bridges", "of": "rendering anew", "times": times} in parts["chat"]["ratios"]
    for name, part in parts.items():
        peers = next(one.peers for one in PARTS if one.name == name)
        assert len(part["ratios"]) == len(peers), "a peer is named otherwise than its benchmark names it"
        assert part["seconds"] > 0
        assert part["load"] >= 0
    assert written["versions"]["numpy"]
    page = (tmp_path / "figures.md").read_text()
    assert page in capsys.readouterr().out
    assert "| searchqa | bm25: queries/s | " in page
    assert "`agentgym-tok bench chat`" in page
    assert f"{times:.3g} times rendering anew" in page


@pytest.mark.parametrize(("less", "expected"), [(False, 4.0), (True, 0.25)])
def test_a_ratio_says_how_many_times_better(less: bool, expected: float) -> None:
    peer = Peer("ours", "theirs", "it", less_is_better=less)
    assert peer.ratio({"ours": 8.0, "theirs": 2.0}) == expected
    assert peer.ratio({"ours": 8.0}) is None
    assert peer.ratio({"ours": 8.0, "theirs": 0.0}) is None


def test_what_is_missing_is_said_and_the_rest_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "alfworld+stock", "--only", "chat", "--quick", "--out", str(tmp_path)]
    assert main(["bench", "all", *options]) == 0
    stock, chat = json.loads((tmp_path / "figures.json").read_text())["parts"]
    assert stock["why_not"] == "left out: the stock engine, --stock"
    assert chat["why_not"] is None
    assert "left out: the stock engine, --stock" in capsys.readouterr().err


def test_a_part_that_fails_is_a_row_and_the_rest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Part("broken", ("bench", "chat", "--turns", "1"))
    monkeypatch.setattr(bench_all, "PARTS", [broken, *PARTS])
    options = ["--only", "broken", "--only", "chat", "--quick", "--out", str(tmp_path)]
    assert main(["bench", "all", *options]) == 1
    failed, chat = json.loads((tmp_path / "figures.json").read_text())["parts"]
    assert failed["why_not"].startswith("failed, status 2: ")
    assert "turns" in failed["why_not"]
    assert chat["figures"]
    assert "| broken |" in capsys.readouterr().out


def test_of_one_benchmark_with_a_peer_and_without_only_one_runs() -> None:
    def names(**options: str) -> set[str]:
        return {part.name for part in bench_all._chosen(bench_all.Options(**options))}  # type: ignore[arg-type]

    # What cannot run stays in the table, and says what it needs.
    assert {"proxy", "proxy+litellm"} <= names()
    assert "proxy" not in names(litellm="litellm")
    assert "alfworld" in names(litellm="litellm")
    assert "alfworld" not in names(stock="python")


def test_another_interpreter_borrows_this_library(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH $@" >&2\nexit 3\n')
    python.chmod(0o755)
    assert main(["bench", "all", "--only", "alfworld+stock", "--stock", str(python), "--out", str(tmp_path)]) == 1
    (part,) = json.loads((tmp_path / "figures.json").read_text())["parts"]
    assert part["why_not"].startswith(f"failed, status 3: {ROOT} -m agentgym_tok.cli.main bench alfworld --against")


def test_a_part_that_is_none_is_named() -> None:
    with pytest.raises(UnknownName, match=r"chatt.*chat"):
        bench_all.run(bench_all.Options(only=("chatt",)))


@pytest.mark.deep
def test_every_part_runs(tmp_path: Path) -> None:
    assert main(["bench", "all", "--quick", "--out", str(tmp_path)]) == 0
    parts = json.loads((tmp_path / "figures.json").read_text())["parts"]
    for part in parts:
        assert part["figures"] or part["why_not"].startswith("left out: "), part
        possible = [
            peer for one in PARTS if one.name == part["name"] for peer in one.peers if peer.theirs in part["figures"]
        ]
        assert len(part["ratios"]) == len(possible)
