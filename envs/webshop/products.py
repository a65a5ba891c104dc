"""One product: from a row of WebShop's raw schema, and to and from a row of our own prepared files."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, Self

from agentgym_tok.envs.webshop.raw import Record, bad, texts

__all__ = ["FileNames", "HumanInstruction", "Instruction", "Product", "read_products"]

_NO_PRICE = (100.0,)
_NOT_PRICE = re.compile(r"[^\d.]")


@dataclass(frozen=True, slots=True)
class Instruction:
    """Hold an instruction made from a template, for any choice of the product's options.

    Args:
        text: The words, without options and price.
        attributes: What the product must have.
    """

    text: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """Hold an instruction that a person wrote.

    Args:
        text: The words, without the price.
        attributes: What the product must have; an instruction without any is no goal.
        options: Values of options to choose.
    """

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Hold what the shop knows of a product. Two products are the same only as objects, which keeps caches fast.

    Args:
        asin: Id of at most 10 characters.
        title: The name.
        description: The full description.
        features: The bullet points.
        price_tag: The price as shown, `$9.5` or `$9.5 to $12.0`.
        pricing: One price, or the lowest and the highest, in dollars.
        options: Values to choose from, by the name of the option.
        attributes: What the product has, for the reward.
        category: One of five departments.
        query: The search that found it when the data were collected.
        product_category: Names of categories, from wide to narrow, separated by U+203A.
        instruction: The template instruction, where there is one.
        human_instructions: Instructions that people wrote.
        nouns: The nouns of the title in lower case; None where nobody has looked yet.
    """

    asin: str
    title: str
    description: str
    features: tuple[str, ...]
    price_tag: str
    pricing: tuple[float, ...]
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    category: str
    query: str
    product_category: str
    instruction: Instruction | None = None
    human_instructions: tuple[HumanInstruction, ...] = ()
    nouns: tuple[str, ...] | None = None

    @property
    def document(self) -> str:
        """The text that the search knows of the product."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        first = self.features[0] if self.features else ""
        return f"{self.title} {self.description} {first} {options}".lower()

    def to_row(self) -> bytes:
        """Return the product as a row of a prepared file."""
        instruction = self.instruction and (self.instruction.text, self.instruction.attributes)
        human = [(one.text, one.attributes, one.options) for one in self.human_instructions]
        plain = [getattr(self, name) for name in _PLAIN]
        # Escaped: raw files may hold lone surrogates, which no UTF-8 can.
        return json.dumps([*plain, instruction, human, self.nouns], separators=(",", ":")).encode()

    @classmethod
    def from_row(cls, row: bytes) -> Self:
        """Return the product of a row that `to_row` made."""
        asin, title, description, features, price_tag, pricing, options, attributes, *rest = json.loads(row)
        category, query, product_category, instruction, human, nouns = rest
        return cls(
            asin,
            title,
            description,
            tuple(features),
            price_tag,
            tuple(pricing),
            {name: tuple(values) for name, values in options.items()},
            tuple(attributes),
            category,
            query,
            product_category,
            instruction and Instruction(instruction[0], tuple(instruction[1])),
            tuple(HumanInstruction(text, tuple(has), tuple(chosen)) for text, has, chosen in human),
            None if nouns is None else tuple(nouns),
        )


_PLAIN = tuple(field.name for field in fields(Product))[:-3]


class FileNames(NamedTuple):
    """Name the three raw files for errors."""

    items: str = "items"
    attributes: str = "attributes"
    human: str = "human instructions"


_NAMES = FileNames()


def read_products(
    rows: Iterable[Any], attributes: Mapping[str, Any], human: Mapping[str, Any], *, names: FileNames = _NAMES
) -> Iterator[tuple[int, Product]]:
    """Yield the products of raw rows with the numbers of their rows, as the original engine loads them.

    Rows with the asin `nan`, a longer one than 10 characters or a repeated one are left out. Our own generated
    catalogues may add the field `title_nouns`.

    Args:
        rows: Objects of `items_*.json`.
        attributes: Content of `items_ins*.json`.
        human: Content of `items_human_ins.json`.
        names: Names of the three files.

    Raises:
        DataCorrupt: A row does not fit the schema; the error names file, row and field.
    """
    seen: set[str] = set()
    for number, row in enumerate(rows):
        record = Record(row, f"{names.items}, row {number}")
        asin = record.get("asin", str)
        if asin == "nan" or len(asin) > 10 or asin in seen:
            continue
        seen.add(asin)
        has, instruction = _read_attributes(attributes.get(asin), f"{names.attributes}, {asin}")
        told = tuple(_read_human(human.get(asin, []), f"{names.human}, {asin}"))
        pricing, price_tag = _read_pricing(record)
        yield (
            number,
            Product(
                asin,
                record.get("name", str),
                record.get("full_description", str),
                _read_features(record),
                price_tag,
                pricing,
                _read_options(record),
                has,
                record.get("category", str),
                record.get("query", str).lower().strip(),
                record.get("product_category", str),
                instruction,
                told,
                record.texts("title_nouns") if "title_nouns" in record else None,
            ),
        )


def _read_features(record: Record) -> tuple[str, ...]:
    value = record.get("small_description", object)
    return (value,) if isinstance(value, str) else texts(value, record.place("small_description"))


def _read_pricing(record: Record) -> tuple[tuple[float, ...], str]:
    text = record.optional("pricing", str)
    if not text:
        return _NO_PRICE, "$100.0"
    try:
        prices = [float(Decimal(_NOT_PRICE.sub("", part))) for part in text.split("$")[1:]]
    except InvalidOperation:
        prices = []
    if not prices:
        raise bad(record.place("pricing"), text, 'like "$1.23" or "$1.23 - $4.56"')
    if len(prices) == 1:
        return (prices[0],), f"${prices[0]}"
    return (prices[0], prices[1]), f"${prices[0]} to ${prices[1]}"


def _read_options(record: Record) -> dict[str, tuple[str, ...]]:
    choices = record.get("customization_options", object)
    if not choices:
        return {}
    place = record.place("customization_options")
    if not isinstance(choices, Mapping):
        raise bad(place, choices, "an object of lists, by the name of the option")
    options = {}
    for name, values in choices.items():
        if values is None:
            continue
        if not isinstance(values, list):
            raise bad(f"{place}, {name}", values, "a list of objects with a value")
        shown = (Record(value, f"{place}, {name}").get("value", str) for value in values)
        options[name.lower()] = tuple(text.strip().replace("/", " | ").lower() for text in shown)
    return options


def _read_attributes(entry: object, where: str) -> tuple[tuple[str, ...], Instruction | None]:
    if entry is None:
        return ("DUMMY_ATTR",), None
    record = Record(entry, where)
    has = record.texts("attributes") if "attributes" in record else ("DUMMY_ATTR",)
    text = record.optional("instruction", str)
    if text is None:
        return has, None
    return has, Instruction(text, record.texts("instruction_attributes"))


def _read_human(entries: object, where: str) -> Iterator[HumanInstruction]:
    if not isinstance(entries, list):
        raise bad(where, entries, "a list of instructions")
    for number, entry in enumerate(entries):
        record = Record(entry, f"{where}, number {number}")
        yield HumanInstruction(
            record.get("instruction", str),
            record.texts("instruction_attributes"),
            record.texts("instruction_options"),
        )
