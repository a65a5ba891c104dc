"""The built site: whole, and nothing in it is loaded from elsewhere. `make test-docs` builds it first."""

import os
import re
import zlib
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from pages import PAGES, ROOT, blocks
from public_names import reference


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the folder of the built site, or skip."""
    folder = os.environ.get("AGENTGYM_TOK_SITE")
    if not folder:
        pytest.skip("no site was built: run make test-docs")
    return Path(folder)


@pytest.fixture(scope="module")
def html(site: Path) -> dict[str, BeautifulSoup]:
    """Return every page of the site by its path."""
    files = sorted(site.rglob("*.html"))
    return {file.relative_to(site).as_posix(): BeautifulSoup(file.read_bytes(), "html.parser") for file in files}


def test_every_page_is_in_the_site(html: dict[str, BeautifulSoup]) -> None:
    for page in PAGES:
        assert page.removesuffix(".md") + ".html" in html


def test_every_public_name_stands_in_the_reference(site: Path, html: dict[str, BeautifulSoup]) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    shown = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()}
    homes: dict[tuple[str, str], str] = {}
    for module, names in reference(ROOT).items():
        listed = html[f"reference/{module}.html"].get_text()
        for name, found in names.items():
            home = homes.setdefault((found.module, found.name), f"{module}.{name}")
            assert {home, f"{found.module}.{found.name}"} & shown, f"{module}.{name} is documented nowhere"
            assert name in listed, f"{module} does not list {name}"


def test_nothing_is_loaded_from_elsewhere(site: Path, html: dict[str, BeautifulSoup]) -> None:
    outside = re.compile(r"^(https?:)?//")
    for path, page in html.items():
        loaded = [tag.get("src") or tag.get("href") for tag in page.select("[src], link[href]")]
        assert [one for one in loaded if outside.match(str(one))] == [], path
        assert "google-analytics" not in str(page)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", style.read_text(encoding="utf-8")), style


def test_every_block_of_code_is_one_that_the_tests_run(html: dict[str, BeautifulSoup]) -> None:
    for page in PAGES:
        drawn = html[page.removesuffix(".md") + ".html"].select("article pre")
        assert len(drawn) == len(blocks(page)), f"{page}: an indented block?"


def test_marks_for_the_tests_are_no_part_of_what_is_read(html: dict[str, BeautifulSoup]) -> None:
    for path, page in html.items():
        assert "<!-- not run" not in page.get_text(), path


def test_warnings_of_the_build_are_errors() -> None:
    (command,) = re.findall(r"^\t.*mkdocs build.*$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert "--strict" in command
    assert "-q" not in command  # it drops warnings before they are counted
