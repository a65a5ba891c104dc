import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.webshop import Goal
from agentgym_tok.envs.webshop.goals import WeightedDraw, limit_goals
from agentgym_tok.errors import DataCorrupt


def test_a_goal_is_read_in_the_original_form(raw: Any) -> None:
    goal = Goal.from_mapping(raw.goal(goal_options={"color": "red"}, price_upper=1000000, weight=0.25))
    assert (goal.goal_options, goal.price_upper, goal.weight) == ({"color": "red"}, 1_000_000.0, 0.25)
    assert Goal.from_mapping(raw.goal(goal_options=["red"])).goal_options == ("red",)
    without = raw.goal()
    del without["weight"]
    assert Goal.from_mapping(without).weight == 1.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("price_upper", 0),
        ("price_upper", -1.0),
        ("price_upper", float("nan")),
        ("price_upper", "20"),
        ("attributes", []),
        ("attributes", "solid wood"),
        ("goal_options", None),
        ("goal_options", {"color": 1}),
        ("goal_options", ["red", None]),
        ("instruction_text", None),
        ("asin", 7),
        ("weight", "1"),
    ],
)
def test_a_goal_that_cannot_be_is_refused_with_its_field(raw: Any, field: str, value: Any) -> None:
    with pytest.raises(DataCorrupt, match=f"goals.json, goal 4, field {field}"):
        Goal.from_mapping(raw.goal(**{field: value}), where="goals.json, goal 4")
    with pytest.raises(DataCorrupt, match="a JSON object"):
        Goal.from_mapping([value])


def test_the_weighted_draw_is_one_place_off_as_in_the_original() -> None:
    draw, rng = WeightedDraw([1.0, 2.0, 1.0]), random.Random(0)
    counts = Counter(draw(rng) for _ in range(4000))
    assert counts.keys() == {1, 2}
    assert 800 < counts[1] < 1200  # the share of goal 0
    assert WeightedDraw([5.0])(rng) == 0


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=12), st.integers(0, 99), st.data())
def test_limited_goals_are_different_ones_in_the_order_drawn(weights: list[float], seed: int, data: Any) -> None:
    limit = data.draw(st.integers(0, len(weights) - 1))
    chosen = limit_goals(np.array(weights), limit, random.Random(seed))
    assert len(set(chosen)) == len(chosen) == limit
    draw, rng = WeightedDraw(weights), random.Random(seed)
    drawn: dict[int, None] = {}
    while len(drawn) < limit:  # however seldom the lightest goal comes
        drawn[draw(rng)] = None
    assert chosen == list(drawn)


@pytest.mark.parametrize("limit", [3, 4])
def test_a_limit_that_limits_nothing_keeps_all(limit: int) -> None:
    assert limit_goals([1.0, 1.0, 1.0], limit, random.Random(0)) == [0, 1, 2]
