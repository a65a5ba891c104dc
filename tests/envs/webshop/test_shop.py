import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.webshop import Catalogue, Goal, Shop, TitleNouns, WebShopEngine
from agentgym_tok.errors import DataCorrupt, DataMissing, UnknownName


@pytest.fixture
def catalogue(tmp_path: Path, raw: Any) -> Catalogue:
    rows = [raw.item(f"B{number}", name=f"Lamp {number}", pricing="$5 - $500") for number in range(20)]
    template = {"attributes": ["red"], "instruction": "Find me a lamp", "instruction_attributes": ["red"]}
    told = {"instruction": "i want a lamp", "instruction_attributes": ["red"], "instruction_options": []}
    contents = [rows, {row["asin"]: template for row in rows}, {"B1": [told], "B2": [told]}]
    paths = [tmp_path / name for name in ("items.json", "ins.json", "human.json")]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    return Catalogue.from_files(*paths, cache=tmp_path / "cache")


def facts(shop: Shop) -> tuple[list[Goal], list[float]]:
    return list(shop.goals), shop.prices_N.tolist()


def test_equal_seeds_give_equal_shops_from_memory_and_from_the_folder(catalogue: Catalogue) -> None:
    memory = Catalogue.from_products((catalogue.product(index) for index in range(20)), source="x")
    for kind, number in (("synthetic", 20), ("human", 2)):
        shops = [Shop.drawn(place, kind, price_seed=3) for place in (catalogue, catalogue, memory)]
        assert facts(shops[0]) == facts(shops[1]) == facts(shops[2])
        assert len(shops[0].goals) == number
    assert catalogue.folder is not None
    assert len(list(catalogue.folder.glob("goals-*"))) == 2


def test_each_seed_changes_its_own_draws_alone(catalogue: Catalogue) -> None:
    base = Shop.drawn(catalogue, "synthetic", goal_seed=0)
    prices = Shop.drawn(catalogue, "synthetic", price_seed=1, goal_seed=0)
    limits = Shop.drawn(catalogue, "synthetic", goal_seed=1)
    order = Shop.drawn(catalogue, "synthetic", goal_seed=0, shuffle_seed=1)
    assert facts(prices)[1] != facts(base)[1]
    assert facts(limits)[1] == facts(order)[1] == facts(base)[1]
    assert (
        [goal.asin for goal in limits.goals]
        == [goal.asin for goal in prices.goals]
        == [goal.asin for goal in base.goals]
    )
    assert facts(limits)[0] != facts(base)[0]
    assert facts(order)[0] != facts(base)[0]
    assert sorted(goal.instruction_text for goal in order.goals) == sorted(goal.instruction_text for goal in base.goals)


def test_a_limit_lies_above_the_price_so_that_the_product_itself_can_be_bought(catalogue: Catalogue) -> None:
    shop = Shop.drawn(catalogue, "synthetic")
    for goal in shop.goals:
        index = catalogue.index(goal.asin)
        assert index is not None
        assert shop.prices_N[index] < goal.price_upper


def test_unknown_kinds_missing_prices_and_bad_goals_are_refused(catalogue: Catalogue, raw: Any) -> None:
    with pytest.raises(UnknownName, match="synthetic"):
        Shop.drawn(catalogue, "synthetik")  # type: ignore[arg-type]
    prices = {f"B{number}": 1.0 for number in range(20)}
    with pytest.raises(DataCorrupt, match=r"mine\.json, goal 1, field attributes"):
        Shop.fixed(catalogue, prices, [raw.goal(), raw.goal(attributes=[])], where="mine.json")
    del prices["B7"]
    with pytest.raises(DataCorrupt, match="B7"):
        Shop.fixed(catalogue, prices, [raw.goal()])


def test_nouns_come_from_the_catalogue_and_else_from_the_titles(catalogue: Catalogue, raw: Any) -> None:
    own = Catalogue.from_raw([raw.item("B1", name="a", title_nouns=["x"]), raw.item("B2", name="b")], {})
    shop = Shop.fixed(own, {"B1": 1.0, "B2": 1.0}, [], TitleNouns("m", {"a": ["y"], "b": ["z"]}))
    assert [shop.title_nouns(own.product(index)) for index in range(2)] == [("x",), ("z",)]
    goals = [Goal.from_mapping(raw.goal(asin, name=name)) for asin, name in (("B1", "a"), ("B1", "b"), ("B9", "a"))]
    assert [shop.goal_nouns(goal) for goal in goals] == [("x",), ("z",), ("y",)]
    engine = WebShopEngine(Shop.drawn(catalogue, "synthetic"))
    engine.reset()
    engine.step("search[lamp]")
    engine.step("click[b1]")
    with pytest.raises(DataMissing, match="tagged"):
        engine.step("click[buy now]")
    # Nothing has happened: the purchase can be tried again.
    assert engine.step("look").text.endswith("Buy Now")


def test_a_shop_in_a_folder_is_small_to_send(catalogue: Catalogue) -> None:
    shop = Shop.drawn(catalogue, "synthetic")
    data = pickle.dumps(shop)
    assert facts(pickle.loads(data)) == facts(shop)
    assert len(data) < 1000
    engine = pickle.loads(pickle.dumps(WebShopEngine(shop)))
    assert engine.reset("7").text == WebShopEngine(shop).reset("7").text
    fixed = Shop(catalogue, shop.prices_N, list(shop.goals), shop.nouns)
    assert facts(pickle.loads(pickle.dumps(fixed))) == facts(shop)
