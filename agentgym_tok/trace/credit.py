"""Credit: one advantage for each rollout, carried to every trained token of all its rows."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym_tok.errors import ConfigError, unknown_name
from agentgym_tok.trace.records import Row

__all__ = ["assign_advantages", "group_returns"]


def group_returns(made: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Return what group statistics are made of: each root rollout's return, once however many rows it has.

    Args:
        made: Rows of any number of rollouts; those of subagents count for nothing here.

    Returns:
        By group, then by rollout.
    """
    returns: dict[str, dict[str, float]] = {}
    for row in made:
        if row.parent_rollout is None:
            returns.setdefault(row.group_id, {})[row.rollout_id] = row.reward
    return returns


def assign_advantages(made: Iterable[Row], advantages: Mapping[str, ArrayLike]) -> list[Row]:
    """Give every trained token its advantage; all others have 0.

    A rollout becomes several rows where its contexts were rewritten; each of them carries the rollout's one advantage
    (the mistake of SkyRL #1507 was to leave it on the last). Subagents and summaries inherit the root's, unless they
    are named themselves.

    Args:
        made: Rows of any number of rollouts.
        advantages: By rollout id: a number, or one for each of the episode's turns (float [N]), as step-level
            estimators have them.

    Returns:
        The rows, in their order, each with `advantage_T` (float32 [T]).

    Raises:
        UnknownName: Neither a row's rollout nor its root has an advantage.
        ConfigError: There is not one number for each turn, or one of them is not finite.
    """
    return [replace(row, advantage_T=_advantage(row, advantages)) for row in made]


def _advantage(row: Row, advantages: Mapping[str, ArrayLike]) -> NDArray[np.float32]:
    own = row.rollout_id in advantages
    name = row.rollout_id if own or row.parent_rollout is None else row.parent_rollout
    if name not in advantages:
        raise unknown_name("advantage", name, advantages, where=f"rollout {row.rollout_id}")
    given = np.asarray(advantages[name], dtype=np.float32)
    turns = len(row.turn_rewards_N)
    if given.ndim and (not own or given.shape != (turns,)):
        expected = f"shape ({turns},), or one number" if own else "one number, which a subagent can inherit"
        raise ConfigError(
            "advantages do not fit the turns", where=f"rollout {name}", got=f"shape {given.shape}", expected=expected
        )
    if not np.isfinite(given).all():
        raise ConfigError("an advantage is not finite", where=f"rollout {name}", got=given.tolist())
    advantage_T = np.zeros(len(row.ids_T), dtype=np.float32)
    advantage_T[row.mask_T] = given[row.turn_T[row.mask_T]] if given.ndim else given
    advantage_T.flags.writeable = False
    return advantage_T
