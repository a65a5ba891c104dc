"""Who does not compare solves few of the generated goals: a high share of solved ones means something."""

from collections.abc import Callable
from random import Random

import pytest

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.webshop import WebShopEngine
from agentgym_tok.envs.webshop.generated.shop import synth_shop
from agentgym_tok.envs.webshop.reading import read_page
from agentgym_tok.envs.webshop.splits import split_goals

Baseline = Callable[[WebShopEngine, TextObservation], TextObservation]
MOST = 15


def at_random(engine: WebShopEngine, seen: TextObservation) -> TextObservation:
    """Search for the instruction, and click on anything."""
    draw = Random(seen.text)
    seen = search(engine, seen)
    for _ in range(MOST - 1):
        if not seen.terminated:
            seen = engine.step(draw.choice(seen.admissible_commands or ("search[anything]",)))
    return seen


def without_search(engine: WebShopEngine, seen: TextObservation) -> TextObservation:
    """Buy at once."""
    return engine.step("click[Buy Now]")


def by_one_query(engine: WebShopEngine, seen: TextObservation) -> TextObservation:
    """Search for the instruction, and buy the first product as it is: the rule of the WebShop paper."""
    seen = search(engine, seen)
    engine.step(f"click[{read_page(seen.text).offers[0].asin}]")
    return engine.step("click[Buy Now]")


def search(engine: WebShopEngine, seen: TextObservation) -> TextObservation:
    return engine.step(f"search[{read_page(seen.text).instruction}]")


def ends(baseline: Baseline) -> list[TextObservation]:
    shop = synth_shop()
    engine = WebShopEngine(shop, split_goals("canonical", "eval", len(shop.goals)))
    return [baseline(engine, engine.reset(task)) for task in engine.tasks()]


@pytest.mark.parametrize("baseline", [at_random, without_search, by_one_query])
def test_a_baseline_stays_under_a_quarter(baseline: Baseline) -> None:
    solved = [bool(end.success) for end in ends(baseline)]
    assert sum(solved) / len(solved) < 0.25


def test_one_query_is_a_baseline_that_tries() -> None:
    scores = [end.reward for end in ends(by_one_query)]
    assert sum(scores) / len(scores) > 0.4
