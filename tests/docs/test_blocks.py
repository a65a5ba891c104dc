"""Every code block of every page runs, and prints what stands below it, or says why it cannot.

A block whose first line is a comment `# NAME.py` is also a file of that name, for the commands below it.
"""

import contextlib
import io
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, ELSEWHERE, PAGES, ROOT, UNMARKED, Block, blocks

from agentgym_tok.cli.main import main

HERE = sorted(set(PAGES) - set(ELSEWHERE))

# Blocks that nobody runs, on all pages. Raise it only for what really cannot run without a network, a GPU or a server.
MOST_NOT_RUN = 30


def run_python(code: str, page: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, page, "exec"), names)
    return out.getvalue()


def run_shell(text: str) -> None:
    for line in text.splitlines():
        program, *arguments = shlex.split(line, comments=True) or ["#"]
        if program == "make":
            subprocess.run(["make", "-n", *arguments], cwd=ROOT, check=True, capture_output=True)
        elif program == "agentgym-tok":
            if arguments[0] == "eval" and not {"--episodes", "--resume"} & set(arguments):
                arguments += ["--episodes", "2"]  # a page may name a whole split
            assert main(arguments) == 0
        elif program == "pip":
            check_extras(line)
        else:
            assert program == "#", f"{program} is nothing that a page may call; mark the block"


def check_extras(line: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"agentgym-tok\[([\w,-]+)\]", line):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def run(page: str, made: list[Block]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    printed: str | None = None
    for block in made:
        if block.reason:
            printed = None
        elif block.kind == "python":
            if file := re.match(r"# (\w+\.py)\n", block.text):
                Path(file[1]).write_text(block.text, encoding="utf-8")
            printed = run_python(block.text, page, names)
        elif block.kind == "text" and printed is not None:
            assert printed == block.text
            printed = None
        elif block.kind in {"bash", "sh"}:
            run_shell(block.text)
        elif block.kind == "toml":
            tomllib.loads(block.text)
        elif block.kind == "json":
            json.loads(block.text)
        else:
            raise AssertionError(f"{page}: nobody knows how to run {block.kind!r}: {block.text}")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Let torch take one thread: the models of pages are small, and other tests run beside them."""
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("page", [page for page in HERE if blocks(page)])
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run(page, blocks(page))


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_a_page_with_a_test_of_its_own_is_named_there(page: str, test: str) -> None:
    assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")
    assert blocks(page)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    marked = [block for page in PAGES for block in blocks(page) if block.reason]
    assert len(marked) <= MOST_NOT_RUN
    assert all(len(str(block.reason)) > 10 for block in marked)


def test_what_is_known_of_other_pages_is_still_so() -> None:
    for (page, first), reason in UNMARKED.items():
        assert [block.reason for block in blocks(page) if block.text.startswith(first)] == [reason]


def test_no_fence_escapes_the_reader_of_blocks() -> None:
    for page, file in PAGES.items():
        fences = re.findall(r"^\s*```", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(page)), f"{page} has a fence that is indented or not closed"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("python", "1 / 0"),
        ("bash", "agentgym-tok eval nowhere"),
        ("bash", "curl example.org"),
        ("bash", 'pip install "agentgym-tok[nothing]"'),
        ("toml", "a ="),
        ("json", "{"),
        ("", "anything"),
    ],
)
def test_a_block_that_does_not_hold_is_found(kind: str, text: str) -> None:
    with pytest.raises((AssertionError, ValueError, ZeroDivisionError, SystemExit)):
        run("planted.md", [Block(kind, text + "\n", None)])


def test_another_output_than_the_page_shows_is_found() -> None:
    with pytest.raises(AssertionError):
        run("planted.md", [Block("python", "print(1)\n", None), Block("text", "2\n", None)])


def test_the_pages_are_seen() -> None:
    assert {"index.md", "quickstart.md", "concepts/drift.md", "design/trace.md"} <= set(PAGES)
    assert DOCS.is_dir()
