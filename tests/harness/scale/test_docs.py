"""The page on scaling holds: its commands run, its code prints what it says, its files are named as they are."""

import re
import shlex
from pathlib import Path

import pytest

from agentgym_tok.cli.main import main

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "scaling.md").read_text("utf-8")
# `sh` needs machines that are not here.
RUN = ("bash", "python", "text")

# Each block starts a cluster.
pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("quiet_ray")]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", blocks("bash"))
def test_the_commands_of_the_page_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "agentgym-tok"
        assert main(arguments) == 0


def test_the_code_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,), (printed,) = blocks("python"), blocks("text")
    exec(compile(code, "scaling.md", "exec"), {})
    assert capsys.readouterr().out == printed
