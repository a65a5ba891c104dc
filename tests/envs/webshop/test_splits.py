import random

import pytest

from agentgym_tok.envs.webshop import PRESETS, split_goals
from agentgym_tok.errors import UnknownName


@pytest.mark.parametrize(
    ("preset", "split", "goals"),
    [
        ("original", "test", range(500)),
        ("original", "eval", range(500, 1500)),
        ("original", "train", range(1500, 6910)),
        ("original", "all", range(6910)),
        ("canonical", "eval", range(500)),
        ("canonical", "train", range(500, 6910)),
    ],
)
def test_splits_are_the_published_parts_of_one_order(preset: str, split: str, goals: range) -> None:
    assert split_goals(preset, split, 6910) == goals


@pytest.mark.parametrize("preset", PRESETS)
def test_splits_of_one_order_do_not_overlap_and_small_shops_have_small_splits(preset: str) -> None:
    parts = [set(split_goals(preset, split, 700)) for split in PRESETS[preset] if split != "all"]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 700
    assert list(split_goals("original", "train", 700)) == []


def test_verl_agent_shuffles_for_each_worker_and_so_leaks() -> None:
    tested = split_goals("verl-agent", "eval", 1000, worker_seed=1)
    assert len(set(tested)) == 500
    assert set(tested) & set(split_goals("verl-agent", "train", 1000, worker_seed=2))
    assert not set(tested) & set(split_goals("verl-agent", "train", 1000, worker_seed=1))
    # The goals as the catalogue gives them, shuffled by the worker's seed instead of 233.
    goals = [f"goal {number}" for number in range(1000)]
    shared, theirs = goals.copy(), goals.copy()
    random.Random(233).shuffle(shared)
    random.Random(1).shuffle(theirs)
    assert [shared[index] for index in tested] == theirs[:500]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="canonical"):
        split_goals("canonicle", "train", 10)
    with pytest.raises(UnknownName, match="eval"):
        split_goals("canonical", "test", 10)
