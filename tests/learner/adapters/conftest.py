"""Random rows of every shape, and what the trainers' own classes made of the fixed ones."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from agentgym_tok.trace import Row

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], Any]:
    """Return what a package's own classes made of the fixed rows."""
    return lambda name: json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


@st.composite
def any_row(draw: st.DrawFn, rollout: str = "r", *, advantages: bool | None = None) -> Row:
    """Draw a row of one to four turns with prompts and words of the world between them, and perhaps more behind."""
    counts = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=1, max_size=4))
    rest = draw(st.integers(0, 3))
    turn_T = np.concatenate(
        [[-1] * before + [turn] * told for turn, (before, told) in enumerate(counts)] + [[-1] * rest]
    )
    mask_T = turn_T >= 0
    length = len(turn_T)
    # Every third is certain; the first of each turn is not, or the turn would have no log-probabilities.
    floats = st.floats(-100, -0.0009765625, width=32)
    logprobs = np.array(draw(st.lists(floats, min_size=length, max_size=length)), np.float32)
    begins = np.diff(turn_T, prepend=-1) != 0
    logprobs[~mask_T | (~begins & (np.arange(length) % 3 == 0))] = 0
    advantage_T = np.where(mask_T, draw(st.floats(-8, 8, width=32)), 0).astype(np.float32)
    has = draw(st.booleans()) if advantages is None else advantages
    return Row(
        ids_T=np.array(draw(st.lists(st.integers(0, 4095), min_size=length, max_size=length)), np.int32),
        mask_T=mask_T,
        logprobs_T=logprobs,
        version_T=np.full(length, -1, np.int32),
        turn_T=turn_T.astype(np.int32),
        temperature_T=np.where(mask_T, 0.5, 1).astype(np.float32),
        advantage_T=advantage_T if has else None,
        reward=draw(st.floats(-4, 4, width=32)),
        turn_rewards_N=np.zeros(len(counts)),
        anchor_N=("",) * len(counts),
        valid_N=np.ones(len(counts), np.int8),
        rollout_id=rollout,
        group_id=draw(st.sampled_from(["g", "h"])),
        task="t",
        parent_rollout=None,
        weight=1.0,
        status=draw(st.sampled_from(["done", "truncated"])),
    )


@st.composite
def any_rows(draw: st.DrawFn, *, advantages: bool) -> list[Row]:
    """Draw the rows of one to four rollouts, of one row or several, subagents' rows among them."""
    made: list[Row] = []
    for place in range(draw(st.integers(1, 4))):
        group = draw(st.sampled_from(["g", "h"]))
        own = [
            draw(any_row(f"r{place}", advantages=advantages))
            for _ in range(draw(st.integers(1, 3)) if advantages else 1)
        ]
        reward = own[0].reward
        made += [replace(row, group_id=group, reward=reward) for row in own]
        if advantages and draw(st.booleans()):
            child = draw(any_row(f"child {place}", advantages=advantages))
            made.append(replace(child, group_id=group, parent_rollout=f"r{place}"))
    return made


@pytest.fixture(scope="session")
def row_strategy() -> Callable[..., st.SearchStrategy[Row]]:
    return any_row


@pytest.fixture(scope="session")
def rows_strategy() -> Callable[..., st.SearchStrategy[list[Row]]]:
    return any_rows
