"""The page on exactness names tests that exist, for every law of the design."""

import ast
import re
from functools import cache
from pathlib import Path

from pages import DOCS, ROOT

PAGE = (DOCS / "exact.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
SECTIONS = re.findall(r"^## (\d)\. ([^\n]+)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)


@cache
def functions(file: Path) -> set[str]:
    """Return the names of a file's test functions."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_test_that_the_page_names_is_there() -> None:
    missing = []
    for file, name in NAMED:
        path = ROOT / "tests" / file
        if not path.is_file() or name not in functions(path):
            missing.append(f"{file}::{name}")
    assert missing == []
    assert len(NAMED) > 40


def test_every_law_has_tests() -> None:
    assert [number for number, *_ in SECTIONS] == [*"12345678"]
    for _, title, text in SECTIONS:
        assert len(re.findall(r"`[\w/]+\.py::\w+`", text)) >= 3, title


def test_files_and_targets_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`((?:[a-z]+/)+\w+(?:\.py)?)`", PAGE))
    assert named
    for name in named:
        assert (ROOT / "tests" / name).exists(), name
    targets = set(re.findall(r"`make ([\w-]+)`", PAGE))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert targets
