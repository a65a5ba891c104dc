"""Generated products as rows of WebShop's raw schema, with titles, texts and instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_tok.envs.draws import Draws
from agentgym_tok.envs.webshop.generated.goods import Goods, some
from agentgym_tok.envs.webshop.generated.words import KINDS, Names, names_of

__all__ = ["MOST_ROWS", "MOST_WORLDS", "SynthRow", "synth_row"]

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IDS = 36**9
MOST_ROWS = 10**9
"""Most products of a shop."""
MOST_WORLDS = _IDS // MOST_ROWS
"""So many shops have ids that no other one has."""

# People wrote instructions for few of the official products; so few that files of a million can be read at once.
_MOST_TOLD = 10_000


@dataclass(frozen=True, slots=True)
class SynthRow:
    """Hold one product, as the three raw files hold it.

    Args:
        item: A row of the products.
        attributes: Its entry among attributes and template instructions.
        human: Its instructions in the words of people.
    """

    item: Mapping[str, Any]
    attributes: Mapping[str, Any]
    human: Sequence[Mapping[str, Any]]


def synth_row(index: int, goods: Goods, draws: Draws, world: int = 0) -> SynthRow:
    """Write a product out.

    Args:
        index: Its place in the catalogue.
        goods: What it is.
        draws: Those of the product.
        world: Number of the shop; the id follows from it and from the place.
    """
    asin = _asin(world * MOST_ROWS + index)
    kind, aisle = goods.kind, goods.kind.aisle
    title, nouns = _title(goods, draws)
    wanted = some(draws, goods.attributes, draws.between(1, 3))
    item = {
        "name": title,
        "full_description": _description(goods, draws),
        "pricing": _pricing(goods, draws),
        "small_description": _features(goods, draws, names_of(world)),
        "images": ["https://img.invalid/none.jpg"],
        "customization_options": {
            name: [{"value": value} for value in values] for name, values in goods.options.items()
        },
        "product_category": " \u203a ".join((*aisle.path, kind.query.title())),
        "asin": asin,
        "category": aisle.category,
        "query": kind.query,
        "title_nouns": nouns,
    }
    attributes: dict[str, Any] = {"attributes": list(goods.attributes)}
    if draws.chance(0.4):
        template = draws.pick(_TEMPLATES)
        attributes["instruction"] = template.format(attributes=", ".join(wanted), query=kind.query)
        attributes["instruction_attributes"] = list(wanted)
    told = draws.between(1, 4) if index < _MOST_TOLD else 0
    return SynthRow(item, attributes, [_told(asin, goods, draws) for _ in range(told)])


def _asin(index: int) -> str:
    # One step for each product through all numbers of nine digits: no two are alike, and none tells its place.
    left, digits = (index * 48_271_000_127 + 7_655_321) % _IDS, ""
    for _ in range(9):
        left, digit = divmod(left, 36)
        digits += _DIGITS[digit]
    return f"S{digits}"


def _title(goods: Goods, draws: Draws) -> tuple[str, list[str]]:
    """Return a title, and its nouns in order: names, the kind and what it is for."""
    kind, use = goods.kind.name.title(), goods.use.title()
    one, other = (attribute.title() for attribute in goods.attributes[:2])
    title = draws.pick(_TITLES).format(brand=goods.brand, line=goods.line, kind=kind, use=use, one=one, other=other)
    names = {goods.brand, goods.line, use, *kind.split()}
    words = title.replace(",", "").split()
    return title, [word.lower() for word in words if word in names]


def _description(goods: Goods, draws: Draws) -> str:
    said = draws.pick(_DESCRIPTIONS).format(
        brand=goods.brand, line=goods.line, kind=goods.kind.name, use=goods.use, attribute=goods.attributes[2]
    )
    return f"{said} {draws.pick(_REMARKS)}"


def _features(goods: Goods, draws: Draws, names: Names) -> list[str]:
    features = [
        f"{attribute.capitalize()}: {draws.pick(_FEATURES).format(kind=goods.kind.name, use=goods.use)}"
        for attribute in some(draws, goods.attributes, len(goods.attributes))
    ]
    other = draws.pick([kind for kind in KINDS if kind.aisle is goods.kind.aisle and kind is not goods.kind])
    return [*features, f"Goes well with the {other.name} from {draws.pick(names.brands)}."]


def _pricing(goods: Goods, draws: Draws) -> str:
    price = f"${goods.cents / 100:,.2f}"
    if draws.chance(0.05):
        return ""
    return f"{price} - ${goods.cents / 100 + draws.between(2, 20):,.2f}" if draws.chance(0.1) else price


def _told(asin: str, goods: Goods, draws: Draws) -> dict[str, Any]:
    attributes = some(draws, goods.attributes, draws.between(1, 3))
    options = [draws.pick(values).lower() for values in goods.options.values()]
    that = " and ".join(attributes)
    with_options = "".join(
        f" in {value}" if name == "Color" else f", {name.lower() if name != 'Number of Items' else 'a box of'} {value}"
        for name, value in zip(goods.options, options, strict=True)
    )
    words = draws.pick(_ASKED).format(that=that, query=goods.kind.query, use=goods.use, options=with_options)
    return {
        "asin": asin,
        "instruction": words,
        "instruction_attributes": list(attributes),
        "instruction_options": options,
        "attributes": list(goods.attributes),
        "options": [],
        "worker_id": "",
        "assignment_id": "",
    }


_TEMPLATES = (
    "Find {attributes} {query}",
    "Get me {attributes} {query}",
    "Buy {query}, {attributes}",
    "I need {attributes} {query}",
)
_ASKED = (
    "i'm after {query}{options}, {that} please",
    "we are out of {query} again: order some{options} and make sure it says {that}",
    "do you have {query} for {use}, {that}? if so, get me that{options}.",
    "looking to buy {query}{options}, and it has to be {that}",
    "need {that} {query}{options}, nothing fancy",
    "can you get {query} for {use}? they must be {that}{options}.",
    "a friend wants {query}{options}. {that} is a must",
    "{that} {query}{options}",
)
_TITLES = (
    "{brand} {line} {kind}, {one} and {other}, for {use}",
    "{brand} {kind} for {use}, {one}, {other}, {line}",
    "{one} {kind} by {brand}, {line}, {other}, {use}",
    "{brand} {one} {other} {kind} for {use}, Model {line}",
)
_DESCRIPTIONS = (
    "The {line} by {brand} is made for {use}. It is {attribute} and comes ready to enjoy.",
    "Meet our {kind} for {use}: {attribute}, tested, and backed by {brand}.",
    "{brand} makes one {kind} that lasts. The {line} is {attribute}.",
    "Everyone at {brand} uses this {kind}. {attribute}, and good for {use}.",
)
_REMARKS = (
    "Ships in plain paper.",
    "Please check all choices before you order.",
    "Customers say that they would buy it again.",
    "If anything is wrong, write to us.",
    "Colors may look different on your screen.",
)
_FEATURES = (
    "what a good {kind} should offer.",
    "you will notice it from the first day.",
    "we checked it on every single {kind}.",
    "perfect for {use}.",
    "no compromise here.",
)
