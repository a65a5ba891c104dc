"""What the original engine said, did and scored."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym_tok.envs.webshop import Catalogue, Shop, TitleNouns, WebShopEngine
from agentgym_tok.envs.webshop.drawn import DrawnGoals, draw_goals, shuffled
from agentgym_tok.envs.webshop.goals import WeightedDraw, limit_goals
from agentgym_tok.envs.webshop.products import read_products
from agentgym_tok.envs.webshop.reward import score

RUNS = pytest.mark.parametrize("run", [0, 1], ids=["human", "synthetic"])
KINDS = ("human", "synthetic")


def recorded(golden: dict[str, Any], run: int, catalogue: Catalogue, nouns: TitleNouns) -> tuple[dict[str, Any], Shop]:
    record = golden["runs"][run]
    return record, Shop.fixed(catalogue, record["meta"]["prices"], record["meta"]["goals"], nouns)


@RUNS
def test_every_recorded_episode_replays_equal(
    golden: dict[str, Any], golden_catalogue: Catalogue, golden_nouns: TitleNouns, run: int
) -> None:
    record, shop = recorded(golden, run, golden_catalogue, golden_nouns)
    steps = 0
    for episode in record["episodes"]:
        engine = WebShopEngine(shop, observation=episode["mode"])
        seen = engine.reset(str(episode["session"]))
        for said in episode["steps"]:
            if said["action"] is not None:
                seen = engine.step(said["action"])
            assert seen.text == said["obs"]
            assert seen.facts["available_actions"] == said["avail"]
            assert (seen.reward, seen.terminated) == (said.get("reward", 0.0), said.get("done", False))
            steps += 1
        if seen.terminated:
            assert seen.facts["reward_parts"] == episode["verbose"]
            assert seen.facts["purchase"] == {"asin": episode["asin"], "options": episode["options"]}
            assert seen.success == (seen.reward == 1)
    assert len(record["episodes"]) == 60
    assert steps == (423, 442)[run]


@RUNS
def test_every_recorded_purchase_scores_equal_in_every_part(
    golden: dict[str, Any], golden_catalogue: Catalogue, golden_nouns: TitleNouns, run: int
) -> None:
    record, shop = recorded(golden, run, golden_catalogue, golden_nouns)
    assert len(record["rewards"]) == 480
    for row in record["rewards"]:
        index = golden_catalogue.index(row["asin"])
        assert index is not None
        product, goal = golden_catalogue.product(index), shop.goals[row["goal"]]
        reward = score(
            product,
            goal,
            float(shop.prices_N[index]),
            row["options"],
            nouns=shop.title_nouns(product),
            goal_nouns=shop.goal_nouns(goal),
        )
        assert (reward.score, reward.parts()) == (row["reward"], row["info"])


@RUNS
def test_every_recorded_goal_is_drawn_in_its_place(
    golden: dict[str, Any], golden_catalogue: Catalogue, golden_nouns: TitleNouns, run: int
) -> None:
    record, shop = recorded(golden, run, golden_catalogue, golden_nouns)
    kind = KINDS[run]
    columns = shuffled(draw_goals(golden_catalogue, shop.prices_N, kind, random.Random(0)))
    # The original drew its price limits unseeded: they, and they alone, are taken over.
    columns["price_upper"] = np.array([goal["price_upper"] for goal in record["meta"]["goals"]])
    drawn = DrawnGoals(golden_catalogue, columns, kind)
    assert list(drawn) == list(shop.goals)
    assert len(drawn) == record["meta"]["n_goals"]
    assert np.cumsum(drawn.weights)[-1] == record["meta"]["cum_weights_last"]


@RUNS
def test_every_recorded_price_and_price_limit_could_have_been_drawn(
    golden: dict[str, Any], golden_catalogue: Catalogue, golden_nouns: TitleNouns, run: int
) -> None:
    record, shop = recorded(golden, run, golden_catalogue, golden_nouns)
    assert len(record["meta"]["prices"]) == len(golden_catalogue) == 98
    for index, price in enumerate(shop.prices_N.tolist()):
        pricing = golden_catalogue.product(index).pricing
        assert pricing[0] <= price <= pricing[-1]
    for goal in shop.goals:
        price = record["meta"]["prices"][goal.asin]
        above = [limit for limit in range(10, 1000, 10) if limit > price][:4]
        assert goal.price_upper in (above[1:] or [1_000_000])


@pytest.mark.parametrize(
    ("kind", "digest", "first", "limited"),
    [
        (
            "human",
            "1ea49b0b28ce7225c3d63cdaa58f1513629c6bae3d6e7db5694f16c0554fd106",
            [37, 84, 57, 93, 96, 11, 3, 129],
            ["B000001085", "B000001038", "B000001081", "B000001021", "B000001097"],
        ),
        (
            "synthetic",
            "af4a9f3c492cc4ae41dbb787b463abbc1d7821da2d1b16b942d6a9d76bc3425b",
            [54, 123, 82, 136, 140, 15, 4, 189],
            ["B000001094", "B000001077", "B000001076", "B000001086", "B000001030"],
        ),
    ],
)
def test_prices_goals_and_draws_are_those_of_the_original_seeded_with_7(
    golden_catalogue: Catalogue, kind: str, digest: str, first: list[int], limited: list[str]
) -> None:
    shop = Shop.drawn(golden_catalogue, kind, price_seed=7)
    prices = {golden_catalogue.product(index).asin: price for index, price in enumerate(shop.prices_N.tolist())}
    # The original writes the limit of goals that name none as a whole number.
    limits = [goal.price_upper if goal.price_upper < 1000 else 1_000_000 for goal in shop.goals]
    goals = [[goal.asin, limit, goal.instruction_text] for goal, limit in zip(shop.goals, limits, strict=True)]
    text = json.dumps([*goals, sorted(prices.items())])
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    weights = [goal.weight for goal in shop.goals]
    rng, draw = random.Random(3), WeightedDraw(weights)
    assert [draw(rng) for _ in range(8)] == first
    # The original shuffles and draws from one generator.
    rng = random.Random(233)
    rng.shuffle(list(range(len(weights))))
    assert [shop.goals[index].asin for index in limit_goals(weights, 5, rng)] == limited


def test_every_recorded_search_finds_the_same_products_in_the_same_order(
    golden: dict[str, Any], golden_catalogue: Catalogue
) -> None:
    assert len(golden["searches"]) == 156
    asins = golden_catalogue.columns["asins"]
    for search in golden["searches"]:
        hits, scores = golden_catalogue.search.rank(search["q"])
        assert [str(asins[hit]) for hit in hits] == [asin for asin, _ in search["hits"]]
        # Anserini rounds to four digits and spreads ties a little below.
        np.testing.assert_allclose(scores, [told for _, told in search["hits"]], rtol=0, atol=1e-4)


def test_the_official_small_attribute_file_is_read_unchanged(shared: Path, raw: Any) -> None:
    attributes = json.loads((shared / "webshop" / "items_ins_v2_1000.json").read_bytes())
    products = [product for _, product in read_products(map(raw.item, attributes), attributes, {})]
    assert len(products) == 1000
    assert sum(product.instruction is not None for product in products) == 415
