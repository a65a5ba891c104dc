"""A maker of training rows, for all tests of learners."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from agentgym_tok.trace import Row


@pytest.fixture(scope="session")
def make_row() -> Callable[..., Row]:
    """Return a maker of rows: before each turn stands one token of the world."""

    def row(
        rollout: str,
        rewards: Sequence[float],
        *,
        group: str = "g",
        tokens: Sequence[int] | None = None,
        anchors: Sequence[str] | None = None,
        valid: Sequence[int] | None = None,
        parent: str | None = None,
        weight: float = 1.0,
        versions: Sequence[str] = (),
        version: Sequence[int] | None = None,
    ) -> Row:
        """Make a row of turns with so many trained tokens each (0: the turn stands in another row)."""
        turns = len(rewards)
        tokens = [1] * turns if tokens is None else tokens
        turn_T = np.concatenate([[-1, *[turn] * count] for turn, count in enumerate(tokens)]).astype(np.int32)
        mask_T = turn_T >= 0
        length = len(turn_T)
        version_T = np.full(length, -1, np.int32)
        if version is not None:
            version_T[mask_T] = version
        return Row(
            ids_T=np.arange(length, dtype=np.int32) + 10,
            mask_T=mask_T,
            logprobs_T=np.where(mask_T, -1.0, 0.0).astype(np.float32),
            version_T=version_T,
            turn_T=turn_T,
            temperature_T=np.ones(length, np.float32),
            advantage_T=None,
            reward=float(sum(rewards)),
            turn_rewards_N=np.array(rewards, np.float64),
            anchor_N=tuple(anchors or (f"{rollout} {turn}" for turn in range(turns))),
            valid_N=np.array([1] * turns if valid is None else valid, np.int8),
            rollout_id=rollout,
            group_id=group,
            task="t",
            parent_rollout=parent,
            weight=weight,
            status="done",
            versions=tuple(versions),
        )

    return row
