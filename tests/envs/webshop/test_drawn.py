# ruff: noqa: RUF001  # the categories of the data are written with this angle

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.webshop import Catalogue, Goal
from agentgym_tok.envs.webshop.drawn import DrawnGoals, draw_goals, draw_prices, shuffled
from agentgym_tok.errors import DataCorrupt


def template(text: str = "Find me a lamp", *attributes: str) -> dict[str, Any]:
    return {"attributes": [], "instruction": text, "instruction_attributes": list(attributes or ["red"])}


def told(text: str, attributes: list[str], options: list[str] | None = None) -> dict[str, Any]:
    return {"instruction": text, "instruction_attributes": attributes, "instruction_options": options or []}


def goals(catalogue: Catalogue, kind: Any, price: float = 10.0, seed: int = 0) -> list[Goal]:
    prices_N = np.full(len(catalogue), price)
    return list(DrawnGoals(catalogue, draw_goals(catalogue, prices_N, kind, random.Random(seed)), kind))


def test_only_prices_between_two_are_drawn_in_the_order_of_the_products(raw: Any) -> None:
    pricings = ["$5.00", "$1 - $3", "", "$9 - $9", "$30 - $20"]
    catalogue = Catalogue.from_raw([raw.item(f"B{n}", pricing=text) for n, text in enumerate(pricings)], {})
    rng = random.Random(3)
    expected = [5.0, rng.uniform(1, 3), 100.0, rng.uniform(9, 9), rng.uniform(30, 20)]
    assert draw_prices(catalogue, random.Random(3)).tolist() == expected


def test_human_goals_are_the_instructions_with_attributes(raw: Any) -> None:
    entries = [told("..i want it..", ["a", "b"], ["red"]), told("no goal", []), told("me too", ["a"])]
    catalogue = Catalogue.from_raw([raw.item("B1"), raw.item("B2")], {}, {"B2": entries})
    first, second = goals(catalogue, "human", price=980.0)
    assert first == Goal(
        *("B2", "garden", "desk lamps", "Lumora Lamp Set, red", "Home › Lighting › Lamps", "i want it"),
        *(("a", "b"), 1_000_000.0, ("red",), 1.0),
    )
    assert (second.instruction_text, second.attributes) == ("me too", ("a",))


def test_synthetic_goals_are_all_choices_of_options_with_the_names_in_order(raw: Any) -> None:
    choices = {"Size": raw.values("s", "l"), "Color": raw.values("red", "blue")}
    rows = [
        raw.item("B1"),
        raw.item("B2", customization_options=choices),
        raw.item("B3", customization_options={"X": []}),
    ]
    catalogue = Catalogue.from_raw(rows, {"B1": {"instruction": None}, "B2": template(), "B3": template()})
    drawn = goals(catalogue, "synthetic", price=990.0)
    assert [list(goal.goal_options.items()) for goal in drawn if isinstance(goal.goal_options, dict)] == [
        [("color", color), ("size", size)] for color in ("red", "blue") for size in ("s", "l")
    ]
    assert drawn[1].instruction_text == "Find me a lamp with color: red, and size: l"
    plain = goals(Catalogue.from_raw([raw.item("B1")], {"B1": template()}), "synthetic", price=55.0)
    assert plain[0].instruction_text.startswith("Find me a lamp, and price lower than ")
    assert plain[0].goal_options == {}


@pytest.mark.parametrize(
    ("price", "limits"),
    [(9.99, {20, 30, 40}), (10.0, {30, 40, 50}), (969.0, {980, 990}), (970.0, {990}), (980.0, {1_000_000})],
)
def test_limits_are_the_larger_of_two_of_the_next_four_tens(raw: Any, price: float, limits: set[int]) -> None:
    catalogue = Catalogue.from_raw([raw.item("B1")], {"B1": template()})
    drawn = [goals(catalogue, "synthetic", price, seed)[0] for seed in range(60)]
    assert {goal.price_upper for goal in drawn} == limits
    for goal in drawn:
        named = f", and price lower than {goal.price_upper:.2f} dollars"
        assert goal.instruction_text == "Find me a lamp" + (named if goal.price_upper < 1000 else "")


def test_a_product_draws_one_limit_for_all_its_synthetic_goals_and_one_for_each_human_one(raw: Any) -> None:
    choices = {"Color": raw.values(*map(str, range(30)))}
    catalogue = Catalogue.from_raw(
        [raw.item("B1", customization_options=choices)], {"B1": template()}, {"B1": [told("x", ["a"])] * 30}
    )
    assert len({goal.price_upper for goal in goals(catalogue, "synthetic")}) == 1
    assert len({goal.price_upper for goal in goals(catalogue, "human")}) > 1


def test_rare_attributes_weigh_more(raw: Any) -> None:
    choices = {"Color": raw.values("red", "blue", "tan")}
    rows = [raw.item("B1", customization_options=choices), raw.item("B2")]
    catalogue = Catalogue.from_raw(rows, {"B1": template("x", "a", "b"), "B2": template("y", "b")})
    assert [goal.weight for goal in goals(catalogue, "synthetic")] == [*[(1 / 3 + 1 / 4) / 2] * 3, 1 / 4]


def test_a_template_without_attributes_is_refused(raw: Any) -> None:
    entry = {"attributes": [], "instruction": "x", "instruction_attributes": []}
    catalogue = Catalogue.from_raw([raw.item("B1")], {"B1": entry})
    assert goals(catalogue, "human") == []
    with pytest.raises(DataCorrupt, match="B1, field instruction_attributes"):
        goals(catalogue, "synthetic")


@given(st.integers(0, 40), st.integers(0, 999))
def test_a_shuffle_is_that_of_the_goals_themselves(number: int, seed: int) -> None:
    columns = {"product": np.arange(number), "weight": np.arange(number) / 2}
    order = list(range(number))
    random.Random(seed).shuffle(order)
    mixed = shuffled(columns, seed)
    assert mixed["product"].tolist() == order
    assert mixed["weight"].tolist() == [goal / 2 for goal in order]
    assert shuffled(columns)["product"].tolist() == shuffled(columns, 233)["product"].tolist()


def test_drawn_goals_are_a_sequence(raw: Any) -> None:
    catalogue = Catalogue.from_raw([raw.item("B1"), raw.item("B2")], {"B1": template("x"), "B2": template("y")})
    prices_N = np.array([10.0, 10.0])
    drawn = DrawnGoals(catalogue, draw_goals(catalogue, prices_N, "synthetic", random.Random(0)), "synthetic")
    assert [goal.asin for goal in drawn] == ["B1", "B2"]
    assert [goal.asin for goal in drawn[::-1]] == ["B2", "B1"]
    assert drawn[-1] == drawn[1] != drawn[0]
    assert drawn.weights.tolist() == [0.5, 0.5]
    with pytest.raises(IndexError):
        drawn[2]
