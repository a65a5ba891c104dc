"""Rows over random ids, which share prefixes in every way that a group of rollouts does."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Row

VOCAB = 4096


def make_row(
    ids: Sequence[int],
    mask: Sequence[int],
    *,
    rollout: str = "r",
    advantage: float | None = None,
    draw: np.random.Generator | None = None,
    **fields: Any,
) -> Row:
    """Make a row; what is drawn are the engine's log-probabilities and temperatures."""
    mask_T = np.array(mask, bool)
    length = len(mask_T)
    draw = draw or np.random.default_rng(0)
    usual: dict[str, Any] = {
        "ids_T": as_ids(ids),
        "mask_T": mask_T,
        "logprobs_T": np.where(mask_T, -8 - draw.random(length), 0).astype(np.float32),
        "version_T": np.where(mask_T, 0, -1).astype(np.int32),
        "turn_T": np.where(mask_T, 0, -1).astype(np.int32),
        "temperature_T": np.where(mask_T, 0.7, 1).astype(np.float32),
        "advantage_T": None if advantage is None else np.where(mask_T, advantage, 0).astype(np.float32),
        "reward": 0.0,
        "turn_rewards_N": np.zeros(1),
        "anchor_N": ("",),
        "valid_N": np.ones(1, np.int8),
        "rollout_id": rollout,
        "group_id": "g",
        "task": "t",
        "parent_rollout": None,
        "weight": 1.0,
        "status": "done",
        "versions": ("0",),
    }
    return Row(**usual | fields)


def make_group(seed: int = 0, *, advantages: bool = True) -> list[Row]:
    """Return two groups: rollouts of several turns, one of which was rewritten, and one of which begins another."""
    draw = np.random.default_rng(seed)

    def ids(count: int) -> list[int]:
        found: list[int] = draw.integers(VOCAB, size=count).tolist()
        return found

    def row(tokens: list[int], mask: list[int], rollout: str, **fields: Any) -> Row:
        advantage = float(draw.normal()) if advantages else None
        return make_row(tokens, mask, rollout=rollout, advantage=advantage, draw=draw, **fields)

    prompt, other = ids(11), ids(7)
    first = ids(9)
    turns = [0] * 11 + [1, 1, 1, 0, 0, 0, 1, 1, 1]
    rows = [
        row(prompt + first, turns, "a", weight=0.7),
        # The same rollout, rewritten after its first turn: what both rows hold is trained by one of them.
        row(prompt + first[:6] + ids(4), [0] * 18 + [1, 1, 1], "a", weight=0.3),
        row(prompt + ids(9), turns, "b"),
        row(prompt + first[:3], [0] * 12 + [1, 1], "c"),
        row(prompt + first[:3], [0] * 12 + [1, 1], "d"),
        row(other + ids(2), [0] * 7 + [1, 1], "e", group_id="h"),
        row(other + ids(5), [0] * 7 + [1, 0, 1, 1, 0], "f", group_id="h"),
    ]
    filler = row(ids(6), [0, 0, 1, 1, 1, 1], "filler", weight=0.0)
    return [*rows, filler, row(ids(4), [0] * 4, "nothing trained")]
