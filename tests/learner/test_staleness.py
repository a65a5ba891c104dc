"""A rollout is as old as the oldest weights that drew any of its tokens."""

from collections.abc import Callable

from agentgym_tok.learner import split_stale, weight_lags
from agentgym_tok.learner.staleness import UNKNOWN_LAG
from agentgym_tok.trace import Row

UPDATES = {"new": 0, "old": 2}


def test_each_token_has_the_age_of_its_weights(make_row: Callable[..., Row]) -> None:
    row = make_row("a", [0], tokens=[4], versions=("old", "new", "never heard of"), version=[0, 1, 2, -1])
    assert weight_lags(row, UPDATES).tolist() == [0, 2, 0, UNKNOWN_LAG, UNKNOWN_LAG]


def test_a_rollout_falls_whole_by_its_oldest_token(make_row: Callable[..., Row]) -> None:
    fresh = make_row("fresh", [1], versions=("new",), version=[0])
    mixed = make_row("mixed", [0, 1], tokens=[2, 0], versions=("new",), version=[0, 0])
    later = make_row("mixed", [0, 1], tokens=[0, 1], versions=("old",), version=[0])
    parent = make_row("parent", [1], versions=("new",), version=[0])
    child = make_row("child", [1], parent="parent", versions=("old",), version=[0])
    made = [mixed, fresh, parent, later, child]
    kept, stale = split_stale(made, UPDATES, 1)
    assert [row.rollout_id for row in kept] == ["fresh"]
    assert [row.rollout_id for row in stale] == ["mixed", "parent", "mixed", "child"]
    assert [row.rollout_id for row in split_stale(made[::-1], UPDATES, 1)[0]] == ["fresh"]
    assert split_stale(made, UPDATES, 2) == (made, [])


def test_unknown_weights_are_older_than_any_bound(make_row: Callable[..., Row]) -> None:
    assert split_stale([make_row("a", [1])], UPDATES, 10**6)[0] == []
