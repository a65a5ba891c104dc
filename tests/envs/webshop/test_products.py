from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.webshop import Product
from agentgym_tok.envs.webshop.products import FileNames, HumanInstruction, Instruction, read_products
from agentgym_tok.errors import DataCorrupt


def read(raw: Any, attributes: Any = None, human: Any = None, **fields: Any) -> Product:
    entries = [{} if entry is None else {"B000000001": entry} for entry in (attributes, human)]
    return next(iter(read_products([raw.item(**fields)], *entries)))[1]


def parts(product: Product) -> list[Any]:
    return [getattr(product, name) for name in Product.__slots__]


def test_a_row_becomes_a_product(raw: Any) -> None:
    product = read(raw, customization_options={"Color": raw.values(" Navy/Blue ", "RED"), "Size": None})
    assert (product.title, product.description, product.price_tag) == (
        "Lumora Lamp Set, red",
        "A lamp for the desk.",
        "$12.5",
    )
    assert product.features == ("Solid wood: made of oak.", "Easy clean.")
    assert product.options == {"color": ("navy | blue", "red")}
    assert (product.query, product.category) == ("desk lamps", "garden")
    assert (product.attributes, product.instruction, product.human_instructions) == (("DUMMY_ATTR",), None, ())
    assert product.nouns is None
    assert read(raw, title_nouns=["lamp"]).nouns == ("lamp",)


def test_rows_without_a_usable_asin_and_repeated_ones_are_left_out(raw: Any) -> None:
    rows = [
        raw.item(asin, name=str(n)) for n, asin in enumerate(["nan", "B1", "12345678901", "B1", "1234567890", "b1"])
    ]
    found = list(read_products(rows, {}, {}))
    assert [(number, product.asin, product.title) for number, product in found] == [
        (1, "B1", "1"),
        (4, "1234567890", "4"),
        (5, "b1", "5"),
    ]


@pytest.mark.parametrize(
    ("pricing", "prices", "tag"),
    [
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        ("$12.50", (12.5,), "$12.5"),
        ("$1,234.99", (1234.99,), "$1234.99"),
        ("$5 - $7.25", (5.0, 7.25), "$5.0 to $7.25"),
        ("from $7 to $5 or $9", (7.0, 5.0), "$7.0 to $5.0"),
    ],
)
def test_prices_are_read_and_shown_as_in_the_original(raw: Any, pricing: Any, prices: Any, tag: str) -> None:
    product = read(raw, pricing=pricing)
    assert (product.pricing, product.price_tag) == (prices, tag)


def test_options_with_names_that_differ_in_case_are_one(raw: Any) -> None:
    choices = {"Color": raw.values("red"), "Size": [], "COLOR": raw.values("blue")}
    product = read(raw, customization_options=choices)
    assert list(product.options.items()) == [("color", ("blue",)), ("size", ())]


def test_a_single_feature_may_stand_without_a_list(raw: Any) -> None:
    assert read(raw, small_description="Easy clean.").features == ("Easy clean.",)
    assert read(raw, small_description=[]).features == ()


def test_the_document_of_the_search_holds_title_description_first_feature_and_options(raw: Any) -> None:
    choices = {"Color": raw.values("Red", "Blue"), "Size": raw.values("S/M")}
    product = read(raw, customization_options=choices)
    assert product.document == (
        "lumora lamp set, red a lamp for the desk. solid wood: made of oak. color: red, blue, and size: s | m"
    )
    assert read(raw, small_description=[]).document == "lumora lamp set, red a lamp for the desk.  "


def test_instructions_come_from_their_own_files(raw: Any) -> None:
    told = {"instruction": "find it.", "instruction_attributes": ["a"], "instruction_options": [], "worker_id": "w"}
    product = read(raw, {"attributes": [], "instruction": "Find me x", "instruction_attributes": ["b"]}, [told, told])
    assert (product.attributes, product.instruction) == ((), Instruction("Find me x", ("b",)))
    assert product.human_instructions == (HumanInstruction("find it.", ("a",), ()),) * 2
    assert read(raw, {"attributes": ["x"], "instruction": None}).instruction is None
    assert read(raw, {"instruction": "", "instruction_attributes": []}).instruction == Instruction("", ())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", None),
        ("name", 3),
        ("full_description", ["x"]),
        ("small_description", [1]),
        ("small_description", None),
        ("pricing", 12.5),
        ("pricing", "cheap"),
        ("pricing", "$"),
        ("pricing", "$1.2.3"),
        ("customization_options", ["red"]),
        ("customization_options", {"Color": "red"}),
        ("customization_options", {"Color": ["red"]}),
        ("customization_options", {"Color": [{"image": ""}]}),
        ("category", None),
        ("query", None),
        ("product_category", 1),
        ("asin", None),
        ("title_nouns", "lamp"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_file_row_and_field(raw: Any, field: str, value: Any) -> None:
    rows = [raw.item(f"B{number}") for number in range(3)] + [{**raw.item("B9"), field: value}]
    named = "value" if field == "customization_options" and "'image'" in str(value) else field
    with pytest.raises(DataCorrupt) as caught:
        list(read_products(rows, {}, {}, names=FileNames("my/items.json", "a", "h")))
    assert "my/items.json, row 3" in str(caught.value)
    assert f"field {field}" in str(caught.value) or f"field {named}" in str(caught.value)


@pytest.mark.parametrize(
    "field", ["name", "full_description", "small_description", "customization_options", "query", "asin"]
)
def test_an_absent_field_is_named(raw: Any, field: str) -> None:
    row = raw.item()
    del row[field]
    with pytest.raises(DataCorrupt, match=f"items, row 0, field {field}; got: 'no such field'"):
        list(read_products([row], {}, {}))


@pytest.mark.parametrize(
    ("attributes", "human", "where"),
    [
        ({"attributes": "x"}, None, "ins.json, B000000001, field attributes"),
        (["x"], None, "ins.json, B000000001"),
        ({"instruction": "x"}, None, "ins.json, B000000001, field instruction_attributes"),
        (None, {"instruction": "x"}, "human.json, B000000001"),
        (
            None,
            [{"instruction": "x", "instruction_attributes": []}],
            "human.json, B000000001, number 0, field instruction_options",
        ),
    ],
)
def test_entries_of_the_other_files_are_named_too(raw: Any, attributes: Any, human: Any, where: str) -> None:
    entries = [{} if entry is None else {"B000000001": entry} for entry in (attributes, human)]
    with pytest.raises(DataCorrupt, match=where):
        list(read_products([raw.item()], *entries, names=FileNames("items.json", "ins.json", "human.json")))


TEXTS = st.text(max_size=5) | st.just("\ud800")


@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=3), st.dictionaries(TEXTS, st.lists(TEXTS, max_size=3), max_size=3))
def test_a_product_comes_back_from_its_row(
    raw: Any, title: str, text: str, features: list[str], options: dict[str, list[str]]
) -> None:
    choices = {name: raw.values(*values) for name, values in options.items()}
    told = {"instruction": text, "instruction_attributes": features, "instruction_options": features}
    attributes = {"attributes": features, "instruction": text, "instruction_attributes": features}
    product = read(
        raw,
        attributes,
        [told],
        name=title,
        full_description=text,
        small_description=features,
        customization_options=choices,
        title_nouns=features,
        pricing="$1 $2",
    )
    assert parts(Product.from_row(product.to_row())) == parts(product)
    bare = read(raw)
    assert parts(Product.from_row(bare.to_row())) == parts(bare)
