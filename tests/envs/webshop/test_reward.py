# ruff: noqa: RUF001  # the categories of the data are written with this angle

from collections.abc import Callable
from typing import Any

import pytest

from agentgym_tok.envs.webshop import Product, Reward
from agentgym_tok.envs.webshop.goals import Goal
from agentgym_tok.envs.webshop.products import read_products
from agentgym_tok.envs.webshop.reward import COLORS, score

Score = Callable[..., Reward]


@pytest.fixture
def buy(raw: Any) -> Score:
    """Return a function that scores the purchase of a lamp."""

    def score_it(
        options: dict[str, str] | None = None,
        *,
        price: float = 10.0,
        nouns: str = "lamp set",
        goal_nouns: str = "lamp set",
        attributes: list[str] | None = None,
        product: dict[str, Any] | None = None,
        goal: dict[str, Any] | None = None,
    ) -> Reward:
        attributes_file = {"B000000001": {"attributes": attributes or []}}
        thing: Product = next(iter(read_products([raw.item(**(product or {}))], attributes_file, {})))[1]
        wanted = Goal.from_mapping(raw.goal(**(goal or {})))
        return score(thing, wanted, price, options or {}, nouns=nouns.split(), goal_nouns=goal_nouns.split())

    return score_it


def test_a_perfect_purchase_scores_one_and_says_why(buy: Score) -> None:
    reward = buy({"color": "red"}, goal={"goal_options": ["red"]})
    assert reward.score == 1.0
    assert reward.parts() == {
        "r_type": 1.0,
        "r_att": 1.0,
        "w_att": 1 / 3,
        "query_match": True,
        "category_match": True,
        "title_score": 1.0,
        "r_option": 1.0,
        "w_option": 1 / 3,
        "r_price": True,
        "w_price": 1 / 3,
    }
    assert "r_option" not in buy().parts()


@pytest.mark.parametrize(("price", "fits"), [(19.99, True), (20.0, True), (20.01, False)])
def test_the_price_limit_itself_is_within_the_limit(buy: Score, price: float, fits: bool) -> None:
    reward = buy(price=price)
    assert (reward.r_price, reward.score) == (fits, 1.0 if fits else 0.5)


@pytest.mark.parametrize(
    ("has", "wanted", "matches"),
    [
        ("wood solid", "solid wood", True),
        ("solid wood frame", "solid wood", True),
        ("Solid-Woods!", "solid wood", True),
        ("soft wood", "solid wood", False),
        ("10x50 uhd binoculars", "8x40 uhd binoculars", True),  # 87, and 85 before thefuzz 0.20
        ("abcdefghijklmnopqrst", "abcdefghijklmnopqxxx", False),  # 85: not above it
        ("abcdefghijklmnopqrstuvw1234", "abcdefghijklmnopqrstuvw5678", False),  # 85.2 is rounded
        ("abcdefg", "abcdefx", True),  # 85.7 is rounded to 86
        ("größe", "gre", True),
        ("★", "★", False),
        ("", "...", False),
    ],
)
def test_attributes_match_alike_words_in_any_order(buy: Score, has: str, wanted: str, matches: bool) -> None:
    blank = {"name": "", "full_description": "", "small_description": ""}
    assert buy(attributes=["other", has], product=blank, goal={"attributes": [wanted]}).r_att == matches


def test_attributes_match_in_the_texts_of_the_product_too(buy: Score) -> None:
    wanted = {"attributes": ["glossy"]}
    assert buy(goal=wanted).r_att == 0
    assert buy(product={"name": "A GLOSSY lamp"}, goal=wanted).r_att == 1
    assert buy(product={"full_description": "Isn't it Glossy?"}, goal=wanted).r_att == 1
    assert buy(product={"small_description": ["x", "unglossy"]}, goal=wanted).r_att == 1
    # Features are joined by blanks; wanted words themselves are not lowered.
    assert buy(product={"small_description": ["so", "new"]}, goal={"attributes": ["so new"]}).r_att == 1
    assert buy(product={"full_description": "Xyz"}, goal={"attributes": ["Xyz"]}).r_att == 0


def test_each_wanted_attribute_counts_alike(buy: Score) -> None:
    reward = buy(goal={"attributes": ["solid wood", "easy clean", "glossy"]})
    assert (reward.r_att, reward.w_att, reward.w_price) == (2 / 3, 3 / 4, 1 / 4)
    assert reward.score == 3 / 4


@pytest.mark.parametrize(
    ("chosen", "wanted", "matches"),
    [
        ("red", "red", True),
        ("dark red", "dark navy", True),  # both are "dark"
        ("a-red x", "crimson red", True),
        ("colored", "red", True),
        ("standard", "tan", True),
        ("red white", "white red", True),  # the first of the list is found, not the first of the text
        ("navy", "navy blue", False),  # "blue" stands before "navy" in the list
        ("8 ounce (pack of 2)", "pack of 2 8 ounce", True),
        ("small", "large", False),
        ("RED", "red", True),  # no colour is found, but case does not count
    ],
)
def test_options_match_by_color_or_alike_words(buy: Score, chosen: str, wanted: str, matches: bool) -> None:
    assert buy({"any name": chosen}, goal={"goal_options": [wanted]}).r_option == matches


def test_colors_are_looked_for_in_the_order_of_the_alphabet() -> None:
    assert len(COLORS) == 102
    assert list(COLORS) == sorted(COLORS)


def test_each_wanted_option_may_be_met_by_any_chosen_one(buy: Score) -> None:
    reward = buy({"color": "red"}, goal={"goal_options": ["red", "red", "small"]})
    assert (reward.r_option, reward.w_option) == (2 / 3, 3 / 5)
    assert buy({}, goal={"goal_options": ["red"]}).r_option == 0


@pytest.mark.parametrize(
    ("name", "wanted", "chosen", "matches"),
    [
        ("color", "red", "red", True),  # the value is a colour: it stands for the pair
        ("color", "a-red x", "a-red x", True),  # no colour: "red" against the words "color", "a", "red", "x"
        ("color", "a-red x", "crimson red", True),
        ("size", "small", "small", True),  # "small" against "size small"
        ("size", "x-large", "size", True),  # the name alone matches too
        ("color", "navy blue", "navy", True),  # wanted without a name it would be "blue", and not match
        ("color", "navy blue", "blue", True),
        ("color", "navy blue", "navy-blue", True),
        ("color", "tan", "standard", True),
        ("color", "colored", "red", False),  # wanted without a name it would be "red"
        ("red", "small", "a red one", True),  # a name can be the colour
    ],
)
def test_options_wanted_by_name_are_compared_as_printed_pairs(
    buy: Score, name: str, wanted: str, chosen: str, matches: bool
) -> None:
    assert buy({"x": chosen}, goal={"goal_options": {name: wanted}}).r_option == matches


def test_a_pair_with_a_sign_that_python_escapes_is_compared_as_escaped(buy: Score) -> None:
    value = "wide\u200efit"
    assert buy({"x": value}, goal={"goal_options": {"k": value}}).r_option == 0
    assert buy({"x": value}, goal={"goal_options": {"k": "wide fit"}}).r_option == 1
    assert buy({"x": value}, goal={"goal_options": [value]}).r_option == 1


@pytest.mark.parametrize(
    ("nouns", "title_score", "r_type"),
    [
        ("a b c d e f g h i j k", 1.0, 1.0),
        ("a b c", 3 / 11, 1.0),
        ("a b", 2 / 11, 1.0),
        ("a", 1 / 11, 0.1),  # in spite of query and categories
        ("z", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_too_few_common_nouns_override_query_and_categories(
    buy: Score, nouns: str, title_score: float, r_type: float
) -> None:
    reward = buy(nouns=nouns, goal_nouns="a b c d e f g h i j k")
    assert (reward.title_score, reward.r_type) == (title_score, r_type)
    assert reward.score == r_type


@pytest.mark.parametrize(
    ("nouns", "fields", "r_type"),
    [
        ("a", {}, 0.5),
        ("a b", {}, 1.0),
        ("a", {"query": "desk lamps"}, 1.0),
        ("a", {"product_category": "Lamps › x › Home"}, 1.0),
        ("a", {"product_category": "Lamps›Home"}, 1.0),
        ("a", {"product_category": "Lamps › Lamps › x"}, 0.5),
    ],
)
def test_another_kind_of_thing_scores_half(buy: Score, nouns: str, fields: dict[str, str], r_type: float) -> None:
    goal = {"query": "x", "product_category": "x › y", **fields}
    assert buy(nouns=nouns, goal_nouns="a b c d e", goal=goal).r_type == r_type


def test_nouns_that_the_goal_repeats_weigh_down_and_a_goal_without_nouns_gives_a_fifth(buy: Score) -> None:
    assert buy(nouns="a a b", goal_nouns="a a b c").title_score == 2 / 4
    assert buy(nouns="a", goal_nouns="").title_score == 0.2
    assert buy(nouns="a", goal_nouns="", goal={"query": "x", "product_category": "x"}).r_type == 0.5
