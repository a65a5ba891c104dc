"""Fixtures for WebShop: a shop of a few products that holds every quirk, and the records of the original."""

# ruff: noqa: RUF001  # the categories of the data are written with this angle

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.webshop import Catalogue, Shop, TitleNouns, WebShopEngine

FILES = ("items", "items_ins", "items_human_ins")


def item(asin: str = "B000000001", **fields: Any) -> dict[str, Any]:
    """Return a row of the raw schema."""
    return {
        "asin": asin,
        "name": "Lumora Lamp Set, red",
        "full_description": "A lamp for the desk.",
        "small_description": ["Solid wood: made of oak.", "Easy clean."],
        "pricing": "$12.50",
        "images": ["https://img.invalid/0.jpg"],
        "customization_options": "",
        "product_category": "Home › Lighting › Lamps",
        "category": "garden",
        "query": "Desk Lamps ",
        "brand": "not read",
        **fields,
    }


def values(*names: str) -> list[dict[str, Any]]:
    """Return the values of an option in the raw schema."""
    return [{"value": name, "image": None} for name in names]


def goal(asin: str = "B000000001", **fields: Any) -> dict[str, Any]:
    """Return a goal in the original's own form."""
    return {
        "asin": asin,
        "category": "garden",
        "query": "desk lamps",
        "name": "Lumora Lamp Set, red",
        "product_category": "Home › Lighting › Lamps",
        "instruction_text": "i need a lamp",
        "attributes": ["solid wood"],
        "price_upper": 20.0,
        "goal_options": [],
        "weight": 1,
        **fields,
    }


class Raw:
    """Make rows and goals of the raw schemas; a fixture, so that tests need no import from here."""

    item = staticmethod(item)
    values = staticmethod(values)
    goal = staticmethod(goal)


@pytest.fixture(scope="session")
def raw() -> type[Raw]:
    return Raw


MakeShop = Callable[..., Shop]


@pytest.fixture(scope="session")
def make_shop() -> MakeShop:
    def make(
        items: Sequence[Mapping[str, Any]] | None = None,
        goals: Sequence[Mapping[str, Any]] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Shop:
        rows = [{"title_nouns": ["lamp"], **row} for row in (items or [item()])]
        catalogue = Catalogue.from_raw(rows, attributes or {}, source="WebShop-test")
        prices = {catalogue.product(index).asin: 10.0 for index in range(len(catalogue))}
        nouns = TitleNouns("by hand", {"Lumora Lamp Set, red": ["lamp"]})
        return Shop.fixed(catalogue, prices, goals or [goal()], nouns)

    return make


MakeEngine = Callable[..., WebShopEngine]


@pytest.fixture(scope="session")
def make_engine(make_shop: MakeShop) -> MakeEngine:
    def make(
        items: Sequence[Mapping[str, Any]] | None = None,
        goals: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> WebShopEngine:
        return WebShopEngine(make_shop(items, goals), **options)

    return make


@pytest.fixture(scope="session")
def golden_folder(shared: Path) -> Path:
    folder = shared / "webshop" / "golden"
    if not (folder / "golden.json").is_file():
        pytest.skip(f"no golden records in {folder}")
    return folder


@pytest.fixture(scope="session")
def golden(golden_folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((golden_folder / "golden.json").read_bytes())
    return content


@pytest.fixture(scope="session")
def golden_files(golden_folder: Path) -> list[Path]:
    return [golden_folder / f"synthetic_{name}.json" for name in FILES]


@pytest.fixture(scope="session")
def golden_catalogue(golden_files: list[Path]) -> Catalogue:
    items, attributes, human = (json.loads(file.read_bytes()) for file in golden_files)
    return Catalogue.from_raw(items, attributes, human, num_products=100, source="WebShop-golden")


@pytest.fixture(scope="session")
def golden_nouns(golden: dict[str, Any]) -> TitleNouns:
    return TitleNouns(golden["versions"]["model"], golden["title_nouns"])
