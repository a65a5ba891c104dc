"""What a learner changes about raw returns before it compares them, and the groups that have nothing to compare."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import PositiveInt

from agentgym_tok.config import Config

__all__ = ["Overlong", "informative_groups", "overlong_penalty"]


class Overlong(Config):
    """Say from which length on a rollout loses reward.

    Args:
        max_tokens: Sampled tokens from which the whole penalty is due.
        buffer: The penalty grows over this many tokens before that.
        penalty: The whole penalty, in units of reward.
    """

    max_tokens: PositiveInt
    buffer: PositiveInt
    penalty: float = 1.0


def overlong_penalty(tokens_B: ArrayLike, rule: Overlong) -> NDArray[np.float64]:
    """Return what long rollouts lose: DAPO's soft penalty.

        0 up to max - buffer, then -penalty * (tokens - (max - buffer)) / buffer, and no less than -penalty

    Args:
        tokens_B: int [B], sampled tokens of each rollout.
        rule: The limits.

    Returns:
        float64 [B], to be added to the returns before they are compared.

    Source: Yu et al. 2025 (arXiv 2503.14476) eq. 13. verl's manager has no floor, as its responses end at the limit.
    """
    over_B = np.asarray(tokens_B, np.float64) - (rule.max_tokens - rule.buffer)
    penalty_B: NDArray[np.float64] = -rule.penalty * np.clip(over_B / rule.buffer, 0.0, 1.0)
    return penalty_B


def informative_groups(returns: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the groups whose returns are not all equal: DAPO's dynamic filtering.

    A group that is left out also leaves KL and distillation, and all denominators; the published SDAR keeps such groups
    for their distillation term.

    Args:
        returns: By group, then by rollout, as `agentgym_tok.trace.group_returns` has them: raw returns, before
            penalties.

    Source: Yu et al. 2025 (arXiv 2503.14476) section 3.2; verl-agent `filter_groups`.
    """
    return [group for group, members in returns.items() if len(set(members.values())) > 1]
