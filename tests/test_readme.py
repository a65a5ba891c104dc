"""Every block of the README runs, and prints what the README says; and a newcomer's first walk, step by step."""

import base64
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
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
# A block whose first line is a comment `# NAME.py` is a file of that name.
FILES = {found[1]: text for text, _ in PYTHON if (found := re.match(r"# (\w+\.py)\n", text))}
WALK = next(block for block in SHELL if "first_policy" in block).splitlines()


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


@pytest.mark.parametrize(
    "block", [block for block in SHELL if "first_policy" not in block], ids=lambda block: block[:24]
)
def test_shell_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program == "make":  # this very test is one of them
            subprocess.run(["make", "-n", *arguments], cwd=ROOT, check=True, capture_output=True)
        elif program == "pip":
            assert arguments == ["install", "-e", "."]
        else:
            assert program == "agentgym-tok"
            assert main(arguments) == 0


# ---- the first quarter of an hour: what a newcomer types, with processes of their own, in an empty folder


@dataclass(slots=True)
class Walk:
    """Take the README's steps in order, each once."""

    folder: Path
    printed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, text in FILES.items():
            (self.folder / name).write_text(text, encoding="utf-8")

    def until(self, command: Sequence[str]) -> str:
        """Go as far as a command; returns what it prints."""
        place = next(
            place for place, line in enumerate(WALK) if shlex.split(line, comments=True)[: len(command)] == [*command]
        )
        for line in WALK[len(self.printed) : place + 1]:
            program, *arguments = shlex.split(line, comments=True)
            assert program == "agentgym-tok"
            installed = Path(sys.executable).with_name(program)
            environ = {**os.environ, "COLUMNS": "160"}
            done = subprocess.run(
                [installed, *arguments], cwd=self.folder, env=environ, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}: {done.stderr}"
            self.printed.append(done.stdout)
        return self.printed[place]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return Walk(tmp_path_factory.mktemp("newcomer"))


def test_the_policy_of_the_first_walk_is_twenty_lines_and_the_quick_start_s() -> None:
    code = FILES["first_policy.py"]
    lines = [line for line in code.splitlines() if line and not line.lstrip().startswith(("#", '"""'))]
    assert len(lines) <= 20
    assert code in (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")


def test_a_newcomer_scores_a_policy_of_their_own_on_three_worlds(walk: Walk) -> None:
    printed = walk.until(
        ["agentgym-tok", "eval", "preset:three-worlds", "--episodes", "4", "--policy", "python:first_policy:answer"]
    )
    for world in ("alfworld", "webshop", "searchqa"):
        assert world in printed
    assert "first_policy" in printed


def test_a_newcomer_compares_it_with_an_expert(walk: Walk) -> None:
    printed = walk.until(["agentgym-tok", "compare", "runs/first", "runs/explorer"])
    assert "ALFWorld-synth" in printed
    assert "WebShop-synth" in printed
    assert "SearchQA-synth" in printed


def test_a_newcomer_opens_the_report(walk: Walk) -> None:
    walk.until(["agentgym-tok", "report"])
    page = (walk.folder / "reports" / "first" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", page), "it needs a network"
    assert "<table" in page


def test_a_newcomer_proves_the_log(walk: Walk) -> None:
    printed = walk.until(["agentgym-tok", "trace", "verify", "runs/first"])
    assert "12 episodes" in printed


def test_a_newcomer_opens_the_viewer(walk: Walk) -> None:
    walk.until(["agentgym-tok", "trace", "view", "runs/first"])
    page = (walk.folder / "runs" / "first" / "view.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    packed = re.findall(r'<script type="application/octet-stream"[^>]*>([\w+/=]+)</script>', page)
    shown = b"".join(zlib.decompress(base64.b64decode(text)) for text in packed)
    assert b"ALFWorld-synth" in shown
