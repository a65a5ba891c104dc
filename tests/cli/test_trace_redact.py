"""`trace redact` takes secrets out by pattern or by variable, and never repeats one."""

from pathlib import Path

import pytest

from agentgym_tok.cli.main import main
from agentgym_tok.trace import TraceStore

EVAL = ["eval", "alfworld", "--policy", "expert", "--episodes", "2"]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main([*EVAL, "--out", str(tmp_path / "eval")]) == 0
    capsys.readouterr()
    return tmp_path / "eval"


def test_a_pattern_and_a_variable_are_taken_out_and_the_copy_verifies(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "drawer")
    out = str(tmp_path / "out")
    arguments = ["trace", "redact", str(run), "--out", out, "--rule", "words", "--pattern", "cabinet [0-9]+"]
    assert main([*arguments, "--variable", "A_SECRET"]) == 0
    said = capsys.readouterr().out
    assert "turns were taken out" in said
    assert "drawer" not in said
    assert main(["trace", "verify", out]) == 0
    assert "turns are redacted" in capsys.readouterr().out
    with TraceStore(out, mode="r") as store:
        texts = [message.content for episode in store.episodes() for turn in episode.turns for message in turn.messages]
    assert any("\N{FULL BLOCK}" in text for text in texts)
    assert not any("drawer" in text or "cabinet 1" in text for text in texts)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--rule", "x", "--pattern", "("], "no regular expression"),
        (["--rule", "x", "--variable", "NOT_SET"], "the variable is empty"),
        (["--rule", "x"], "nothing to look for"),
        (["--pattern", "x"], "rule"),
    ],
)
def test_mistakes_are_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert main(["trace", "redact", str(run), "--out", str(tmp_path / "out"), *more]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
