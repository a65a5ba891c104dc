from collections.abc import Callable
from typing import Any

import pytest

from agentgym_tok.envs.webshop import Catalogue, Shop, TitleNouns, WebShopEngine

MakeEngine = Callable[..., WebShopEngine]


def follow(engine: WebShopEngine, *, steps: int = 15) -> float:
    """Do what the expert says and return the reward."""
    reward = 0.0
    for _ in range(steps):
        command = engine.expert_command()
        if command is None:
            break
        seen = engine.step(command)
        assert seen.valid, command
        reward += seen.reward
    return reward


def test_the_expert_reaches_the_whole_score_of_every_recorded_synthetic_goal(
    golden: dict[str, Any], golden_catalogue: Catalogue, golden_nouns: TitleNouns
) -> None:
    meta = golden["runs"][1]["meta"]
    engine = WebShopEngine(Shop.fixed(golden_catalogue, meta["prices"], meta["goals"], golden_nouns))
    for task in engine.tasks():
        engine.reset(task)
        assert follow(engine) == 1.0


@pytest.fixture
def maze(make_engine: MakeEngine, raw: Any) -> WebShopEngine:
    """Return a shop of 40 lamps that differ little; the goal has options that share a value."""
    choices = {"Color": raw.values("red", "blue"), "Size": raw.values("small", "red")}
    items = [raw.item(f"B{number:09}", customization_options=choices) for number in range(40)]
    return make_engine(items, [raw.goal("B000000033", goal_options={"color": "red", "size": "small"})])


@pytest.mark.parametrize(
    "start",
    [
        [],
        ["search[nothing]"],
        ["search[lamp]"],
        ["search[lamp]", *["click[next >]"] * 4],
        ["search[lamp]", "click[b000000001]"],
        ["search[lamp]", "click[b000000001]", "click[reviews]"],
        ["search[lamp]", *["click[next >]"] * 3, "click[b000000033]", "click[blue]", "click[features]"],
        ["search[search_results lamp]", "click[b000000001]", "click[< prev]"],
        ["search[<r>]"],
        ["search[<c> garden]", "click[next >]"],
    ],
)
def test_the_expert_finds_the_product_from_anywhere_and_never_goes_in_circles(
    maze: WebShopEngine, start: list[str]
) -> None:
    maze.reset()
    for command in start:
        assert maze.step(command).valid
    follow(maze)
    assert maze.expert_command() is None


def test_the_expert_gives_up_where_the_product_cannot_be_found(make_engine: MakeEngine, raw: Any) -> None:
    engine = make_engine(goals=[raw.goal("B999999999")])
    assert engine.expert_command() is None
    engine.reset()
    assert engine.expert_command() is None
    hidden = [raw.item(f"B{number:09}", name="", full_description="", small_description="x") for number in range(60)]
    engine = make_engine(hidden, [raw.goal("B000000059", query="x", attributes=["x"])])
    engine.reset()
    assert engine.expert_command() is None


def test_signs_that_no_command_can_say_are_left_out_of_its_searches(make_engine: MakeEngine, raw: Any) -> None:
    engine = make_engine([raw.item(name="a [b]\nc", query="")], [raw.goal(query="y", attributes=["y"])])
    engine.reset()
    assert engine.expert_command() == "search[a  b  c]"
    assert "(Total results: 1)" in engine.step("search[a  b  c]").text
