"""Which goals are for training and which for tests, by the names of those who published scores."""

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agentgym_tok.errors import unknown_name

__all__ = ["PRESETS", "split_goals"]

PRESETS: Mapping[str, Mapping[str, tuple[int, int | None]]] = MappingProxyType(
    {
        "original": {"test": (0, 500), "eval": (500, 1500), "train": (1500, None), "all": (0, None)},
        "canonical": {"eval": (0, 500), "train": (500, None), "all": (0, None)},
        "verl-agent": {"eval": (0, 500), "train": (500, None), "all": (0, None)},
    }
)
"""First goal and end of each split, by preset and split.

`original` is that of WebShop's own baselines for human goals (its small catalogue is played with `all` goals).
`canonical` has verl-agent's sizes, but one order of the goals for everyone. `verl-agent` is as published, where each
worker shuffles the goals by a seed of its own before it cuts: goals that one worker is tested on are training goals of
another, so scores of this preset leak.
"""


def split_goals(preset: str, split: str, number: int, *, worker_seed: int = 0) -> Sequence[int]:
    """Return the indices of the goals of a split, in the order that all share.

    Args:
        preset: One of `PRESETS`.
        split: One of the preset's splits.
        number: How many goals there are.
        worker_seed: Only for `verl-agent`: the seed by which the worker shuffled.

    Raises:
        UnknownName: There is no such preset or split.
    """
    if preset not in PRESETS:
        raise unknown_name("split preset", preset, PRESETS, where="WebShop")
    splits = PRESETS[preset]
    if split not in splits:
        raise unknown_name("split", split, splits, where=f"WebShop, preset {preset}")
    part = slice(*splits[split])
    if preset != "verl-agent":
        return range(number)[part]
    shared, theirs = list(range(number)), list(range(number))
    random.Random(233).shuffle(shared)  # noqa: S311  an order, no secret
    random.Random(worker_seed).shuffle(theirs)  # noqa: S311
    place = {goal: index for index, goal in enumerate(shared)}
    return [place[goal] for goal in theirs[part]]
