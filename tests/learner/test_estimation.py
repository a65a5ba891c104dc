"""Rows of agents get the advantage that their estimator gives the rollout, or the step."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from agentgym_tok.learner import ADVANTAGES, AdvantageConfig, Overlong, estimate_advantages, with_advantages
from agentgym_tok.trace import Row

Maker = Callable[..., Row]
EXACT = {"rtol": 0, "atol": 1e-12}
BROKEN, REFUSED = -1, 0


def close(found: object, expected: object) -> bool:
    return np.allclose(np.asarray(found, float), np.asarray(expected, float), **EXACT)


@pytest.fixture
def win_and_loss(make_row: Maker) -> list[Row]:
    """Return vector B's: a win (10) in 2 steps, each a row of its own, and a loss in 6."""
    win = [make_row("win", [0, 10], tokens=tokens, valid=[1, BROKEN]) for tokens in ([1, 0], [0, 1])]
    return [*win, make_row("loss", [0] * 6)]


def test_a_rollout_counts_once_however_many_rows_it_has(win_and_loss: list[Row]) -> None:
    found = estimate_advantages(win_and_loss, ADVANTAGES["grpo"])
    assert close(found["win"], 0.7071066811865616)
    assert close(found["loss"], -0.7071066811865616)


def test_step_rows_count_each_step(win_and_loss: list[Row]) -> None:
    found = estimate_advantages(win_and_loss, AdvantageConfig(statistics="step_row"))
    assert close(found["win"], [1.6201848246020405] * 2)
    assert close(found["loss"], [-0.5400616082006802] * 6)


def test_a_penalty_enters_its_step_before_anything_is_compared(win_and_loss: list[Row]) -> None:
    found = estimate_advantages(win_and_loss, AdvantageConfig(statistics="step_row", invalid_penalty=0.1))
    assert close(found["win"], [1.6310128753452695, 1.609302221430524])
    assert close(found["loss"], [-0.5400525161292988] * 6)
    after = np.array([1.6201848246020405, 1.6201848246020405 - 0.1])  # the wrong variant: taken off at the end
    assert not np.allclose(found["win"], after, atol=1e-3)


def test_a_rollout_pays_for_each_broken_turn_and_for_no_refused_one(make_row: Maker) -> None:
    rows = [make_row("a", [0, 1], valid=[BROKEN, REFUSED]), make_row("b", [0, 0, 0], valid=[BROKEN, BROKEN, 1])]
    found = estimate_advantages(rows, AdvantageConfig(scale="none", invalid_penalty=0.1))
    assert close([found["a"], found["b"]], [0.55, -0.55])


def test_long_rollouts_lose_before_they_are_compared(make_row: Maker) -> None:
    rows = [make_row("a", [1], tokens=[6]), make_row("b", [1], tokens=[10])]
    found = estimate_advantages(rows, AdvantageConfig(scale="none", overlong=Overlong(max_tokens=10, buffer=4)))
    assert close([found["a"], found["b"]], [0.5, -0.5])


def test_gigpo_compares_steps_that_began_at_one_anchor(make_row: Maker) -> None:
    rows = [
        make_row("win", [0, 10], anchors=["start", "door"]),
        make_row("loss", [0, 0, 0], anchors=["start", "x", "y"]),
    ]
    found = estimate_advantages(rows, ADVANTAGES["gigpo"])
    assert close(found["win"], [6 + 4.75, 6])
    assert close(found["loss"], [-4 - 4.75, -4, -4])
    half = estimate_advantages(rows, ADVANTAGES["gigpo"].model_copy(update={"step_weight": 0.5}))
    assert close(half["win"], [6 + 4.75 / 2, 6])
    once = estimate_advantages(rows, AdvantageConfig(estimator="gigpo", scale="none"))
    assert close(once["win"], [5 + 4.75, 5])


def test_gigpos_penalty_falls_on_its_own_step_alone(make_row: Maker) -> None:
    anchors = ["start", "door"]
    rows = [make_row("a", [0, 10], anchors=anchors, valid=[1, BROKEN]), make_row("b", [0, 10], anchors=anchors)]
    config = AdvantageConfig(estimator="gigpo", statistics="step_row", scale="none", invalid_penalty=0.1)
    found = estimate_advantages(rows, config)
    assert close(found["a"], [0.025, -0.075 - 0.05])
    assert close(found["b"], [0.025, 0.025 + 0.05])


def test_anchors_of_other_groups_and_silent_worlds_are_never_the_same(make_row: Maker) -> None:
    rows = [
        make_row("a", [1.0], group="one", anchors=["start"]),
        make_row("b", [0.0], group="two", anchors=["start"]),
        make_row("c", [1.0], group="three", anchors=[""]),
        make_row("d", [0.0], group="three", anchors=[""]),
    ]
    plain = estimate_advantages(rows, AdvantageConfig(statistics="step_row", scale="none"))
    found = estimate_advantages(rows, ADVANTAGES["gigpo"])
    assert {name: part.tolist() for name, part in found.items()} == {n: p.tolist() for n, p in plain.items()}  # type: ignore[union-attr]


def test_reinforce_whitens_what_is_still_to_come(make_row: Maker) -> None:
    rows = [make_row("a", [1, 2], tokens=[1, 3]), make_row("b", [0], tokens=[2])]
    tokens = np.array([3, 2, 2, 2, 0, 0.0])
    expected = (tokens - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)
    found = estimate_advantages(rows, ADVANTAGES["reinforce_pp"])
    assert close(found["a"], expected[[0, 1]])
    assert close(found["b"], expected[[4]])
    tokens = np.array([1.5] * 4 + [-1.5] * 2)
    expected = (tokens - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)
    found = estimate_advantages(rows, ADVANTAGES["reinforce_pp_baseline"])
    assert close(found["a"], expected[[0, 1]])
    assert close(found["b"], expected[[4]])


@pytest.mark.parametrize("name", ADVANTAGES)
def test_every_trained_token_gets_its_number_and_no_other_does(name: str, make_row: Maker) -> None:
    rows = [
        make_row("a", [0, 1], tokens=[2, 0]),
        make_row("b", [0, 0, 0], valid=[1, BROKEN, 1]),
        make_row("a", [0, 1], tokens=[0, 3]),
        make_row("a/child", [0], tokens=[4], parent="a"),
    ]
    found = estimate_advantages(rows, ADVANTAGES[name])
    made = with_advantages(rows, ADVANTAGES[name])
    for row in made:
        assert row.advantage_T is not None
        value = found.get(row.rollout_id, found["a"])
        each = np.broadcast_to(value, len(row.turn_rewards_N))
        assert np.array_equal(row.advantage_T[row.mask_T], each[row.turn_T[row.mask_T]].astype(np.float32))
        assert not row.advantage_T[~row.mask_T].any()
    assert made[3].advantage_T is not None
    assert (made[3].advantage_T[made[3].mask_T] > 0).all()  # the child of the winner


def test_a_subagent_does_not_pay_for_a_step_of_its_root(make_row: Maker) -> None:
    rows = [make_row("a", [1, 0], valid=[BROKEN, 1]), make_row("b", [0, 0]), make_row("a/child", [0], parent="a")]
    found = estimate_advantages(rows, AdvantageConfig(statistics="step_row", scale="none", invalid_penalty=0.1))
    assert close(found["a"], [0.425, 0.525])
    assert close(found["a/child"], 0.525)


def test_a_rollout_that_is_alone_has_nothing_unless_asked(make_row: Maker) -> None:
    rows = [make_row("a", [10])]
    assert close(estimate_advantages(rows, AdvantageConfig())["a"], 0)
    assert close(estimate_advantages(rows, AdvantageConfig(lone="return"))["a"], 9.999990000010001)
    assert close(estimate_advantages(rows, AdvantageConfig(estimator="rloo", lone="return"))["a"], 10)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_the_order_of_rows_does_not_matter(name: str, make_row: Maker) -> None:
    rows = [
        make_row("a", [0, 1], tokens=[2, 0], anchors=["s", "t"]),
        make_row("a", [0, 1], tokens=[0, 3], anchors=["s", "t"]),
        make_row("b", [0, 0, 0], anchors=["s", "t", "u"], valid=[1, BROKEN, 1]),
        make_row("c", [0.5], group="h"),
    ]
    forth, back = (estimate_advantages(order, ADVANTAGES[name]) for order in (rows, rows[::-1]))
    assert forth.keys() == back.keys()
    assert all(close(forth[rollout], back[rollout]) for rollout in forth)


def test_an_empty_batch_has_no_advantages() -> None:
    made: Iterable[Row] = []
    assert estimate_advantages(list(made), ADVANTAGES["grpo"]) == {}
    assert with_advantages(made, ADVANTAGES["reinforce_pp"]) == []
