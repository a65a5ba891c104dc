"""Corrections for tokens that an engine drew with other probabilities than the trainer gives them."""

from typing import Literal, Self, TypeAlias

import torch
from pydantic import Field, model_validator
from torch import Tensor

from agentgym_tok.config import Config
from agentgym_tok.learner.losses.aggregation import Layout

__all__ = ["Importance", "Rule", "effective_sample_size", "importance_weights", "mismatch"]

Rule: TypeAlias = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "geometric_mask"]


class Importance(Config):
    """Name a correction.

    Args:
        rule: `token_truncate` is TIS, `token_mask` MIS or icepop, `sequence_mask` TRL's default; `geometric_mask`
            keeps or drops whole rows by exp of their mean log-weight, and weighs nothing.
        low: Below it a mask drops, and truncation lifts. TIS has 0.
        high: Above it a mask drops, and truncation cuts. verl's TIS has 2, TRL 3, icepop 5 with a low of 0.5.
    """

    rule: Rule = "token_truncate"
    low: float = Field(default=0.0, ge=0)
    high: float = Field(default=2.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"no weight lies between low {self.low} and high {self.high}")
        return self


@torch.no_grad()
def importance_weights(old_T: Tensor, rollout_T: Tensor, layout: Layout, rule: Importance) -> Tensor:
    """Return the weight of each token's policy loss.

        w_t = exp(logp_old - logp_rollout)
        token_truncate     w_t cut to [low, high]           sequence_truncate  prod w cut to [low, high]
        token_mask         w_t within [low, high], else 0   sequence_mask      prod w within [low, high], else 0
        geometric_mask     1 where exp(mean log w) within [low, high], else 0

    They multiply the policy's loss alone: not KL, not distillation, and no denominator (as in verl and TRL).

    Args:
        old_T: float [T], nats; of the trainer, with the weights before the update.
        rollout_T: float [T], nats; of the engine that drew the tokens, at the same temperature.
        layout: The pack; a row is a sequence.
        rule: The correction.

    Returns:
        float [T], detached; 0 where nothing is trained.

    Source: Yao et al. 2025 (TIS); verl `rollout_corr_helper`, whose clamp of log-weights to +-20 is kept; TRL
    `vllm_importance_sampling_mode`; OpenRLHF (`seq-mask-tis` is token_truncate and geometric_mask together).
    """
    log_T = old_T - rollout_T
    if rule.rule.startswith("token"):
        weight_T = log_T.clamp(-20.0, 20.0).exp()
    else:
        log_R = layout.sums(log_T)
        if rule.rule == "geometric_mask":
            log_R = log_R / layout.row_tokens().clamp(min=1).to(log_R.dtype)
        weight_T = log_R.clamp(-20.0, 20.0).exp()[layout.row_T]
    if rule.rule.endswith("truncate"):
        weight_T = weight_T.clamp(rule.low, rule.high)
    else:
        inside_T = (weight_T >= rule.low) & (weight_T <= rule.high)
        kept_T = torch.ones_like(weight_T) if rule.rule == "geometric_mask" else weight_T
        weight_T = torch.where(inside_T, kept_T, 0)
    return torch.where(layout.mask_T, weight_T, 0)


@torch.no_grad()
def effective_sample_size(weights_T: Tensor, mask_T: Tensor) -> Tensor:
    """Return how many equally weighted tokens would say as much: (sum w)^2 / sum w^2; 0 where there are none."""
    kept_T = weights_T[mask_T]
    return kept_T.sum().square() / kept_T.square().sum().clamp(min=torch.finfo(kept_T.dtype).tiny)


@torch.no_grad()
def mismatch(old_T: Tensor, rollout_T: Tensor, mask_T: Tensor) -> dict[str, Tensor]:
    """Measure how far trainer and engine lie apart.

    Args:
        old_T: float [T], nats; the trainer's.
        rollout_T: float [T], nats; the engine's.
        mask_T: bool [T].

    Returns:
        `k3`: mean of w - 1 - log w, an estimate of KL(rollout || trainer), nats. `perplexity_ratio`: the trainer's
        perplexity over the engine's. `ess`: see `effective_sample_size`. `max_gap`: the largest |log w|, nats.
    """
    x_T = (old_T - rollout_T)[mask_T]
    if not len(x_T):
        zero = x_T.sum()
        return {"k3": zero, "perplexity_ratio": zero + 1, "ess": zero, "max_gap": zero}
    near_T = x_T.clamp(-20.0, 20.0)
    return {
        "k3": (near_T.expm1() - near_T).mean(),
        "perplexity_ratio": (-x_T.mean()).exp(),
        "ess": effective_sample_size(near_T.exp(), torch.ones_like(x_T, dtype=torch.bool)),
        "max_gap": x_T.abs().max(),
    }
