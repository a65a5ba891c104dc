"""`bench scaling`: what grows is counted, and explained."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from agentgym_tok.cli.main import main


def test_bytes_are_explained_by_turns_and_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaling.json"
    options = ["--episodes", "8", "--turns", "2", "--turns", "4", "--turns", "8", "--words", "5", "--words", "40"]
    assert main(["bench", "scaling", *options, "--out", str(file)]) == 0
    assert "wire bytes:" in capsys.readouterr().out
    written = json.loads(file.read_text())
    rows = written["rows"]
    assert [row["turns"] for row in rows] == [2, 4, 8] * 2
    for few, many in pairwise(rows[:3]):
        # A context holds all that came before: what is new grows with the turns, what is read with their square.
        assert 1.5 < many["new_tokens"] / few["new_tokens"] < 2.5 < many["context_tokens"] / few["context_tokens"] < 4.5
        assert few["wire_bytes"] < many["wire_bytes"] < 3 * few["wire_bytes"]
    assert written["models"]["wire_bytes"]["% worst error"] < 5
    assert 4 < written["models"]["wire_bytes"]["a token"] < 16
