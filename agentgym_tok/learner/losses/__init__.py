"""Losses on packed tokens, in torch: plain functions of log-probabilities, and `total_loss`, which adds them up.

Each `*_loss` returns one number for each token, float [T], before any mask; `aggregate` makes them one number. Of PCSD
and AgentOPSD no formula was at hand that could be checked: they are missing.
"""

from agentgym_tok.errors import MissingExtra

try:
    import torch  # noqa: F401 - all modules of this folder need it
except ImportError as error:
    raise MissingExtra("losses need torch", where="learner", fix='pip install "agentgym-tok[torch]"') from error

from agentgym_tok.learner.losses.aggregation import Aggregation, Layout, Totals, aggregate
from agentgym_tok.learner.losses.config import OBJECTIVES, LossConfig
from agentgym_tok.learner.losses.distillation import (
    Divergence,
    opsd_full_loss,
    opsd_paper_loss,
    opsd_pg_loss,
    rlsd_advantages,
    skill_sd_loss,
)
from agentgym_tok.learner.losses.importance import (
    Importance,
    effective_sample_size,
    importance_weights,
    mismatch,
)
from agentgym_tok.learner.losses.kl import Estimate, kl_advantages, kl_loss
from agentgym_tok.learner.losses.objective import Scores, merge_figures, total_loss
from agentgym_tok.learner.losses.policy import cispo_loss, clipped_loss, gspo_loss, nll_loss, sequence_ratios
from agentgym_tok.learner.losses.scoring import entropy, log_distribution, pick
from agentgym_tok.learner.losses.sdar import Gate, gap, gate, sdar_loss

__all__ = [
    "OBJECTIVES",
    "Aggregation",
    "Divergence",
    "Estimate",
    "Gate",
    "Importance",
    "Layout",
    "LossConfig",
    "Scores",
    "Totals",
    "aggregate",
    "cispo_loss",
    "clipped_loss",
    "effective_sample_size",
    "entropy",
    "gap",
    "gate",
    "gspo_loss",
    "importance_weights",
    "kl_advantages",
    "kl_loss",
    "log_distribution",
    "merge_figures",
    "mismatch",
    "nll_loss",
    "opsd_full_loss",
    "opsd_paper_loss",
    "opsd_pg_loss",
    "pick",
    "rlsd_advantages",
    "sdar_loss",
    "sequence_ratios",
    "skill_sd_loss",
    "total_loss",
]
