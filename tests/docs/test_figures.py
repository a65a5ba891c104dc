"""The page of benchmarks repeats figures that stand elsewhere, and invents none."""

import re

import pytest
from pages import DOCS, PAGES, ROOT

PAGE = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
CARDS = sorted((ROOT / "agentgym_tok" / "policies" / "small" / "weights").glob("*/card.md"))
SOURCES = [ROOT / "README.md", *CARDS, *(file for page, file in PAGES.items() if page != "benchmarks.md")]
NUMBER = re.compile(r"(?<![\w.,])[\d.][\d,.]*(?:e-\d+)?(?![\w])")


def numbers(text: str) -> set[str]:
    """Return the numbers of a text as they are written, a dot or comma behind them left out."""
    return {found.strip(".,") for found in NUMBER.findall(text)} - {""}


def figures() -> list[str]:
    """Return what stands in the tables, without the commands."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [re.sub(r"`[^`]*`|\]\([^)]*\)", "", row) for row in rows]


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Return every number of every other page."""
    return set().union(*(numbers(file.read_text(encoding="utf-8")) for file in SOURCES))


def test_every_figure_stands_on_another_page(known: set[str]) -> None:
    rounded = {"4.9"}  # a load of 4.92
    found = {number: row for row in figures() for number in numbers(row) if len(number.strip("0.,")) > 1}
    assert {number: row for number, row in found.items() if number not in known | rounded} == {}
    assert len(found) > 40


def test_a_figure_that_is_invented_is_found(known: set[str]) -> None:
    assert not numbers("123,456 steps/s") <= known


def test_every_figure_has_its_command() -> None:
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        head, _, *body = table.strip().splitlines()
        place = [cell.strip() for cell in head.split("|")].index("command")
        for row in body:
            assert [cell.strip() for cell in row.split("|")][place], row
