"""Learners: rows in, advantages, losses and updates out. The losses themselves need the extra `torch`."""

from agentgym_tok.learner.advantages import discounted_returns, group_advantages, rloo, whiten
from agentgym_tok.learner.alignment import align_scores
from agentgym_tok.learner.batch import Batch, Learner
from agentgym_tok.learner.estimation import ADVANTAGES, AdvantageConfig, estimate_advantages, with_advantages
from agentgym_tok.learner.shaping import Overlong, informative_groups, overlong_penalty
from agentgym_tok.learner.staleness import split_stale, weight_lags

__all__ = [
    "ADVANTAGES",
    "AdvantageConfig",
    "Batch",
    "Learner",
    "Overlong",
    "align_scores",
    "discounted_returns",
    "estimate_advantages",
    "group_advantages",
    "informative_groups",
    "overlong_penalty",
    "rloo",
    "split_stale",
    "weight_lags",
    "whiten",
    "with_advantages",
]
