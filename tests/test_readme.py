"""Every block of the README runs, and prints what the README says."""

import contextlib
import io
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from agentgym_tok.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
PYTHON = [
    (text, BLOCKS[place + 1][1] if place + 1 < len(BLOCKS) and BLOCKS[place + 1][0] == "text" else None)
    for place, (kind, text) in enumerate(BLOCKS)
    if kind == "python"
]
SHELL = [text for kind, text in BLOCKS if kind == "bash"]


def test_the_first_block_is_a_short_example_with_its_output() -> None:
    assert BLOCKS[0][0] == "python"
    assert len([line for line in BLOCKS[0][1].splitlines() if line]) <= 8
    assert BLOCKS[1][0] == "text"
    assert {kind for kind, _ in BLOCKS} == {"python", "text", "bash"}


@pytest.mark.parametrize(("code", "printed"), PYTHON, ids=range(len(PYTHON)))
def test_python_blocks_print_what_stands_below_them(code: str, printed: str | None) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert printed is None or out.getvalue() == printed


@pytest.mark.parametrize("block", SHELL, ids=range(len(SHELL)))
def test_shell_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program == "make":  # this very test is one of them
            subprocess.run(["make", "-n", *arguments], cwd=ROOT, check=True, capture_output=True)
        else:
            assert program == "agentgym-tok"
            assert main(arguments) == 0
