"""`bench harness`: its shares add up, and its memory is seen where it is said to be."""

import json
from pathlib import Path

import pytest

from agentgym_tok.cli.main import main


def test_the_command_shows_and_writes_shares_that_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "harness.json"
    options = ["--episodes", "20", "--concurrency", "7", "--steps", "2"]
    assert main(["bench", "harness", *options, "--out", str(file)]) == 0
    assert "20 episodes of 2 turns, 7 in flight" in " ".join(capsys.readouterr().out.split())
    written = json.loads(file.read_text())
    figures = written["figures"]
    assert written["config"]["concurrency"] == 7
    assert figures["world and chat alone, ms a turn"] > 0
    assert figures["harness and store, ms a turn"] == pytest.approx(
        figures["harness, ms a turn"] + figures["store, ms a turn"]
    )
    for store in ("without a store", "with a store"):
        assert figures[f"turns a second of CPU, {store}"] > 0
        assert {name for name in figures if name.startswith("memory") and name.endswith(f", {store}")} == {
            f"memory after {count} episodes, MB, {store}" for count in (2, 20)
        }
