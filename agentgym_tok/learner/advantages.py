"""Advantages: how much better a rollout did than it was expected to, as plain functions of returns.

Which tokens get them is `agentgym_tok.trace.assign_advantages`' business; `estimation` leads from rows to both.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym_tok.errors import ConfigError

__all__ = ["Lone", "Scale", "discounted_returns", "group_advantages", "group_index", "rloo", "whiten"]

Floats: TypeAlias = NDArray[np.float64]
Scale: TypeAlias = Literal["group", "batch", "none"]
Lone: TypeAlias = Literal["zero", "return"]


def group_index(names: ArrayLike) -> NDArray[np.int64]:
    """Number groups by name, from 0, so that equal names share a number."""
    return np.unique(np.asarray(names), return_inverse=True)[1].reshape(-1).astype(np.int64)


def group_advantages(
    returns_B: ArrayLike,
    group_B: ArrayLike,
    *,
    scale: Scale = "group",
    ddof: int = 1,
    eps: float = 1e-6,
    lone: Lone = "zero",
) -> Floats:
    """Return how far each return lies from the mean of its group: GRPO, and Dr.GRPO with `scale="none"`.

        A_i = (R_i - mean_g) / (std + eps)

    Where all returns of a group are equal, its advantages are exactly 0.

    Args:
        returns_B: float [B], in the world's units of reward; one for each rollout, or one for each step row, which
            lets long rollouts weigh more (verl-agent's default).
        group_B: int [B], the group of each, from 0.
        scale: What to divide by: the group's standard deviation (GRPO), that of the whole batch, or nothing (Dr.GRPO).
        ddof: 1 divides the variance by n - 1, as torch, TRL and verl do; 0 by n.
        eps: Added to the standard deviation: 1e-6 in verl, 1e-4 in TRL.
        lone: A group of one has nothing to be compared with: `zero` (TRL) or `return` (verl: mean 0, deviation 1).

    Returns:
        float64 [B].

    Raises:
        ConfigError: The arrays do not fit, or a return is not finite.

    Source: Shao et al. 2024 (arXiv 2402.03300), where eps and ddof are left open; Liu et al. 2025 (arXiv
    2503.20783) drop the deviation; verl `compute_grpo_outcome_advantage`; TRL `scale_rewards`.
    """
    returns_B, group_B = _checked(returns_B, group_B)
    count_B, mean_B = _group_means(returns_B, group_B)
    centred_B = returns_B - mean_B
    spread_G = _spread(returns_B, group_B)
    centred_B[spread_G[group_B] == 0] = 0  # the mean of equal numbers can miss them by the last bit
    is_lone_B = count_B == 1
    if scale == "group":
        squares_G = np.bincount(group_B, centred_B**2)
        deviation_B = np.sqrt(squares_G[group_B] / np.maximum(count_B - ddof, 1))
        advantage_B = centred_B / (deviation_B + eps)
    elif scale == "batch":
        deviation = float(np.std(returns_B, ddof=ddof)) if len(returns_B) > ddof else 0.0
        advantage_B = centred_B / (deviation + eps)
    else:
        advantage_B = centred_B
    if lone == "return":
        alone_B = returns_B if scale == "none" else returns_B / (1 + eps)
        advantage_B = np.where(is_lone_B, alone_B, advantage_B)
    return advantage_B


def rloo(returns_B: ArrayLike, group_B: ArrayLike, *, lone: Lone = "zero") -> Floats:
    """Return how far each return lies from the mean of the others of its group.

        A_i = R_i - mean_{j != i} R_j = n / (n - 1) * (R_i - mean_g)

    Args:
        returns_B: float [B].
        group_B: int [B], the group of each, from 0.
        lone: Of a group of one: `zero`, or `return` (verl: A = R).

    Returns:
        float64 [B].

    Raises:
        ConfigError: The arrays do not fit, or a return is not finite.

    Source: Ahmadian et al. 2024 (arXiv 2402.14740); verl `compute_rloo_outcome_advantage`.
    """
    returns_B, group_B = _checked(returns_B, group_B)
    count_B = np.bincount(group_B)[group_B]
    centred_B = group_advantages(returns_B, group_B, scale="none", lone=lone)
    return centred_B * np.where(count_B > 1, count_B / np.maximum(count_B - 1, 1), 1.0)


def whiten(values_B: ArrayLike, count_B: ArrayLike, *, eps: float = 1e-8) -> Floats:
    """Return values with mean 0 and variance 1 over all trained tokens of the batch: REINFORCE++.

        A = (v - mean) / sqrt(var + eps)

    Args:
        values_B: float [B], values that whole turns or rollouts share, or those of single tokens.
        count_B: int [B], how many trained tokens have each value (for single tokens, the mask).
        eps: Under the root.

    Returns:
        float64 [B]; 0 where the count is 0.

    Source: Hu 2025 (arXiv 2501.03262); verl `masked_whiten` (variance with ddof 1).
    """
    values_B, count_B = np.asarray(values_B, np.float64), np.asarray(count_B, np.float64)
    total = count_B.sum()
    if total == 0:
        return np.zeros_like(values_B)
    mean = float((values_B * count_B).sum() / total)
    square = float((count_B * (values_B - mean) ** 2).sum() / max(total - 1, 1))
    return np.where(count_B > 0, (values_B - mean) / np.sqrt(square + eps), 0.0)


def discounted_returns(rewards_T: ArrayLike, mask_T: ArrayLike, *, gamma: float = 1.0) -> Floats:
    """Return what is still to come at each trained token of one sequence.

        G_t = r_t + gamma * G_next, where next is the next trained token

    What the world says between two turns is skipped, and does not discount. For GiGPO's step returns the rewards of
    turns stand in for those of tokens.

    Args:
        rewards_T: float [T], on trained tokens; a KL penalty in the reward belongs here (`-coefficient * k1`).
        mask_T: bool [T], the trained tokens.
        gamma: Discount from one trained token to the next.

    Returns:
        float64 [T]; 0 where nothing is trained.

    Raises:
        ConfigError: A reward stands on a token that is not trained, where it would be lost.
    """
    rewards_T, mask_T = np.asarray(rewards_T, np.float64), np.asarray(mask_T, bool)
    if rewards_T[~mask_T].any():
        raise ConfigError(
            "a reward stands on a token that is not trained",
            where="discounted_returns",
            got=np.flatnonzero((rewards_T != 0) & ~mask_T).tolist(),
            fix="move it to the last trained token before it",
        )
    returns_T = np.zeros_like(rewards_T)
    to_come = 0.0
    for place in np.flatnonzero(mask_T)[::-1]:
        to_come = float(rewards_T[place]) + gamma * to_come
        returns_T[place] = to_come
    return returns_T


def _checked(returns_B: ArrayLike, group_B: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    returns_B, group_B = np.asarray(returns_B, np.float64), np.asarray(group_B, np.int64)
    if returns_B.ndim != 1 or returns_B.shape != group_B.shape:
        raise ConfigError(
            "each return needs its group", where="advantages", got=f"shapes {returns_B.shape} and {group_B.shape}"
        )
    if not np.isfinite(returns_B).all():
        raise ConfigError("a return is not finite", where="advantages", got=returns_B.tolist())
    return returns_B, group_B


def _group_means(returns_B: Floats, group_B: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """Return the size and the mean of each one's group."""
    count_B = np.bincount(group_B)[group_B]
    return count_B, np.bincount(group_B, returns_B)[group_B] / count_B


def _spread(returns_B: Floats, group_B: NDArray[np.int64]) -> Floats:
    """Return the distance between the best and the worst of each group, [G]."""
    groups = int(group_B.max(initial=-1)) + 1
    high_G, low_G = np.full(groups, -np.inf), np.full(groups, np.inf)
    np.maximum.at(high_G, group_B, returns_B)
    np.minimum.at(low_G, group_B, returns_B)
    spread_G: Floats = high_G - low_G
    return spread_G
