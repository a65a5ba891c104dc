"""The page on reports holds: its commands run, its code prints what it says, its sections are those of a report."""

import re
import shlex
from pathlib import Path

import pytest

from agentgym_tok.cli.main import main

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reports.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_is_tried() -> None:
    assert set(re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)) == {"bash", "python", "text"}


def test_the_commands_of_the_page_run_and_make_what_it_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("bash")
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "agentgym-tok"
        assert main(arguments) == 0
    files = re.findall(r"`([\w/.*]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)))
    assert len(files) == 6
    assert all(list(Path("reports/first").glob(file)) for file in files)
    shown = re.findall(r"<h2>([^<]*)</h2>", Path("reports/first/report.html").read_text("utf-8"))
    told = re.findall(r"^\| ([A-Z][\w ]+) \|", PAGE, re.MULTILINE)
    assert [name for name in told if name != "Training"] == [
        name for name in shown if name not in ("random", "explorer")
    ]


def test_the_code_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,), (printed,) = blocks("python"), blocks("text")
    exec(compile(code, "reports.md", "exec"), {})
    assert capsys.readouterr().out == printed
