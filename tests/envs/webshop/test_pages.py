# ruff: noqa: RUF001  # the categories of the data are written with this angle

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.webshop import Product
from agentgym_tok.envs.webshop.pages import done_page, item_page, results_page, start_page, sub_page
from agentgym_tok.envs.webshop.products import read_products

WORDS = st.text(alphabet=" \n\t\u00a0ab<&\"'", max_size=6)


def product(raw: Any, **fields: Any) -> Product:
    return next(iter(read_products([raw.item(**fields)], {}, {})))[1]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("", []),
        ("\n", []),
        (" \n ", []),
        ("\t\r\n", []),
        (" ", [""]),
        ("\t ", [""]),
        ("\u00a0", [""]),
        ("\u00a0\n", [""]),
        (" a\nb ", ["a\nb"]),
    ],
)
def test_blank_texts_vanish_or_become_one_blank(raw: Any, words: str, shown: list[str]) -> None:
    page = results_page("text", 1, 1, [(0, product(raw, name=words))], frozenset())
    assert page.after.split(" [SEP] ")[3:] == ["B000000001", *shown, "$12.5"]
    description = sub_page("text", product(raw, full_description=words), "description")
    assert description.after.split(" [SEP] ")[2:] == shown


def test_blank_features_are_not_lost_but_those_with_a_line_break_are(raw: Any) -> None:
    thing = product(raw, small_description=["", "\n", "a"])
    assert sub_page("text", thing, "features").after == "Back to Search [SEP] < Prev [SEP]  [SEP] a"
    assert sub_page("text_rich", thing, "features").after.endswith("[button] < Prev [button_]\n \n a\n")


def test_rich_text_keeps_the_blanks_of_the_page(raw: Any) -> None:
    assert start_page("text_rich").text("buy it") == "WebShop\nInstruction: \nbuy it\n[button] Search [button_]\n"
    page = item_page("text_rich", product(raw), "", show_attributes=False)
    assert page.text(" buy it ").startswith("Instruction:\n buy it \n[button] Back to Search [button_]\n")
    assert sub_page("text_rich", product(raw), "features").after.endswith("\n Solid wood: made of oak.\n Easy clean.\n")
    assert "\n (Paste it in your MTurk interface.)\n" in done_page("text_rich", "B1", {}, 0.5)


def test_an_instruction_without_words_is_not_shown(raw: Any) -> None:
    page = sub_page("text", product(raw), "reviews")
    assert page.text("") == "Instruction: [SEP] Back to Search [SEP] < Prev"
    assert page.text(" ") == "Instruction: [SEP]  [SEP] Back to Search [SEP] < Prev"


def test_sub_pages_show_what_they_are_called_for(raw: Any) -> None:
    thing = product(raw)
    assert sub_page("text", thing, "description").after.endswith("< Prev [SEP] A lamp for the desk.")
    assert sub_page("text", thing, "features").after.endswith("[SEP] Solid wood: made of oak. [SEP] Easy clean.")
    assert sub_page("text", thing, "reviews").after.endswith("< Prev")
    attributes = "DUMMY_ATTR [SEP] garden [SEP] desk lamps [SEP] Home › Lighting › Lamps"
    assert sub_page("text", thing, "attributes").after.endswith(f"< Prev [SEP] {attributes}")


def test_the_last_page_shows_options_sorted_and_escaped_and_the_score() -> None:
    text = done_page("text", "B1", {"size": "<16\" & 'x'>", "color": "café"}, 0.75)
    options = r'{"color": "caf\u00e9", "size": "\u003c16\" \u0026 \u0027x\u0027\u003e"}'
    assert f"asin [SEP] B1 [SEP] options [SEP] {options} [SEP] attrs [SEP] None" in text
    assert text.endswith("Your score (min 0.0, max 1.0) [SEP] 0.75 [SEP] Reward Details [SEP] None")
    assert "options [SEP] {} [SEP]" in done_page("text", "B1", {}, 0.0)


def test_options_stand_before_the_title_and_empty_names_are_not_shown(raw: Any) -> None:
    thing = product(raw, customization_options={"": raw.values("a/b", " "), "Size": []})
    page = item_page("text", thing, "", show_attributes=True)
    assert page.after.split(" [SEP] ") == [
        *("Back to Search", "< Prev", "a | b", "size", "Lumora Lamp Set, red", "Price: $12.5", "Rating: N.A."),
        *("Description", "Features", "Reviews", "Attributes", "Buy Now"),
    ]
    assert list(page.links)[-2:] == ["a | b", ""]


@given(WORDS, WORDS, st.booleans())
def test_both_modes_say_the_same_words(raw: Any, title: str, instruction: str, rich_first: bool) -> None:
    thing = product(raw, name=title, customization_options={"Color": raw.values("red", "blue")})
    modes = ("text_rich", "text") if rich_first else ("text", "text_rich")
    pages = {mode: item_page(mode, thing, '"red"', show_attributes=False) for mode in modes}
    assert pages["text"].links == pages["text_rich"].links
    rich = pages["text_rich"].text(instruction).removeprefix("You have clicked red.\n")
    for mark in ("[clicked button] ", " [clicked button_]", "[button] ", " [button_]"):
        rich = rich.replace(mark, "")
    plain = pages["text"].text(instruction).split(" [SEP] ")
    assert "".join(rich.split()) == "".join("".join(plain).split())
