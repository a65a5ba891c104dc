"""The loss of a micro-batch: its terms, over the denominators of the whole update, and figures to watch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from agentgym_tok.errors import ConfigError, InvalidLogprobs
from agentgym_tok.learner.losses.aggregation import Layout, Totals, aggregate
from agentgym_tok.learner.losses.config import LossConfig
from agentgym_tok.learner.losses.distillation import opsd_paper_loss, opsd_pg_loss, rlsd_advantages, skill_sd_loss
from agentgym_tok.learner.losses.importance import importance_weights
from agentgym_tok.learner.losses.kl import kl_advantages, kl_loss
from agentgym_tok.learner.losses.policy import (
    cispo_loss,
    clipped_loss,
    gspo_loss,
    log_ratios,
    nll_loss,
    sequence_ratios,
)
from agentgym_tok.learner.losses.sdar import gap, gate, sdar_loss

__all__ = ["Scores", "merge_figures", "total_loss"]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Hold what the tokens of one micro-batch scored; `[T]`, in the order of `layout`, nats.

    Args:
        layout: Which tokens are trained, and whose they are.
        totals: The denominators of the whole update.
        logprobs_T: Of the policy being trained; with gradient.
        old_T: Of the policy before the update, by the trainer (or by the engine, in its place).
        advantage_T: The advantages.
        rollout_T: Of the engine, for `importance`.
        reference_T: Of the reference, for KL.
        teacher_T: Of the teacher on the same tokens, by the trainer, before the update.
        entropy_T: Of the policy, over the whole vocabulary; with gradient where it earns a bonus.
        divergence_T: Of `opsd_full_loss`; with gradient.
    """

    layout: Layout
    totals: Totals
    logprobs_T: Tensor
    old_T: Tensor
    advantage_T: Tensor
    rollout_T: Tensor | None = None
    reference_T: Tensor | None = None
    teacher_T: Tensor | None = None
    entropy_T: Tensor | None = None
    divergence_T: Tensor | None = None

    def need(self, name: str) -> Tensor:
        """Return a score in at least float32, with 0 where nothing is trained.

        Raises:
            ConfigError: It is not there.
            InvalidLogprobs: It is not finite where it is trained: it is refused, not replaced.
        """
        value_T: Tensor | None = getattr(self, name)
        if value_T is None:
            raise ConfigError("the objective needs a score that is not there", where=f"Scores.{name}", got=None)
        value_T = value_T.to(torch.promote_types(self.logprobs_T.dtype, torch.float32))
        # `where`, and no product with the mask: what stands elsewhere may be NaN.
        kept_T = torch.where(self.layout.mask_T, value_T, 0)
        if not kept_T.isfinite().all():
            raise InvalidLogprobs("a score of a trained token is not finite", where=f"Scores.{name}")
        return kept_T


def total_loss(scores: Scores, config: LossConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """Return what a micro-batch adds to the loss of its update, and figures.

    Args:
        scores: The micro-batch.
        config: The objective.

    Returns:
        A scalar for `backward`: the gradients of all micro-batches sum to that of the update. And detached figures,
        which `merge_figures` joins: `policy/clip_share`, `sdar/gate_mean`, `sdar/gate_active` (share of gates above
        1/2), `teacher/gap_mean`, ... are means over the trained tokens of the whole update.

    Raises:
        ConfigError: A score that the objective needs is missing.
        InvalidLogprobs: A score of a trained token is not finite.
    """
    terms: dict[str, Tensor] = {}
    figures: dict[str, Tensor] = {}
    logprobs_T = scores.need("logprobs_T")
    if config.policy_coefficient:
        terms["policy"] = config.policy_coefficient * _policy(scores, config, logprobs_T, figures)
    if config.kl_coefficient and config.kl_as == "loss":
        kl_T = kl_loss(logprobs_T, scores.need("reference_T"), config.kl)
        figures["kl/mean"] = _mean(kl_T, scores)
        terms["kl"] = config.kl_coefficient * kl_T
    if config.entropy_coefficient:
        terms["entropy"] = -config.entropy_coefficient * scores.need("entropy_T")
    if scores.entropy_T is not None:
        figures["entropy/mean"] = _mean(scores.need("entropy_T"), scores)
    if scores.teacher_T is not None:
        figures["teacher/gap_mean"] = _mean(gap(scores.need("teacher_T"), logprobs_T), scores)
    if config.distillation_coefficient and config.distillation not in {"none", "rlsd"}:
        terms["distillation"] = config.distillation_coefficient * _distillation(scores, config, logprobs_T, figures)
    loss = logprobs_T.sum() * 0  # an objective without terms still has a gradient, which is 0
    for name, term_T in terms.items():
        part = aggregate(term_T, scores.layout, scores.totals, config.aggregation, horizon=config.horizon)
        figures[f"{name}/loss"] = part.detach()
        loss = loss + part
    figures["loss"] = loss.detach()
    return loss, figures


def merge_figures(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Join the figures of an update's micro-batches: they add up, and those that end in `_max` have a largest."""
    merged: dict[str, Tensor] = {}
    for part in parts:
        for name, value in part.items():
            if name not in merged:
                merged[name] = value
            else:
                merged[name] = torch.maximum(merged[name], value) if name.endswith("_max") else merged[name] + value
    return merged


def _policy(scores: Scores, config: LossConfig, logprobs_T: Tensor, figures: dict[str, Tensor]) -> Tensor:
    if config.policy == "nll":
        return nll_loss(logprobs_T)
    old_T, advantage_T = scores.need("old_T"), scores.need("advantage_T")
    if config.kl_coefficient and config.kl_as == "advantage":
        reference_T = scores.need("reference_T")
        figures["kl/mean"] = _mean(old_T - reference_T, scores)
        advantage_T = advantage_T + kl_advantages(old_T, reference_T, config.kl_coefficient)
    if config.distillation == "rlsd" and config.distillation_coefficient:  # at 0 nobody asked the teacher
        strength = config.distillation_coefficient
        advantage_T = rlsd_advantages(advantage_T, scores.need("teacher_T"), old_T, strength=strength)
    low, high = config.clip_low, config.clip_high
    ratio_T = log_ratios(logprobs_T, old_T).detach().exp()
    if config.policy == "clip":
        loss_T = clipped_loss(logprobs_T, old_T, advantage_T, low=low, high=high, dual=config.dual_clip)
    elif config.policy == "gspo":
        loss_T = gspo_loss(logprobs_T, old_T, advantage_T, scores.layout, low=low, high=high)
        ratio_T = sequence_ratios(logprobs_T, old_T, scores.layout).detach()[scores.layout.row_T]
    else:
        loss_T = cispo_loss(logprobs_T, old_T, advantage_T, low=low, high=high)
    above_T, below_T = (ratio_T > 1 + high) & (advantage_T > 0), (ratio_T < 1 - low) & (advantage_T < 0)
    figures["policy/clip_share"] = _mean((above_T | below_T).to(loss_T.dtype), scores)
    figures["policy/ratio_gap_max"] = (ratio_T - 1).abs().max()
    figures["policy/old_gap_mean"] = _mean(old_T - logprobs_T, scores)
    for rule in config.importance:
        weight_T = importance_weights(old_T, scores.need("rollout_T"), scores.layout, rule)
        figures[f"importance/{rule.rule}_mean"] = _mean(weight_T, scores)
        figures[f"importance/{rule.rule}_square"] = _mean(weight_T.square(), scores)
        loss_T = loss_T * weight_T
    return loss_T


def _distillation(scores: Scores, config: LossConfig, logprobs_T: Tensor, figures: dict[str, Tensor]) -> Tensor:
    if config.distillation == "opsd_full":
        return scores.need("divergence_T")
    teacher_T = scores.need("teacher_T")
    if config.distillation == "opsd_pg":
        return opsd_pg_loss(logprobs_T, teacher_T, scores.need("old_T"))
    if config.distillation == "opsd_paper":
        return opsd_paper_loss(logprobs_T, teacher_T)
    if config.distillation == "skill_sd":
        return skill_sd_loss(logprobs_T, teacher_T, scores.need("old_T"))
    entropy_T = None if config.gate == "gap" else scores.need("entropy_T")
    gate_T = gate(gap(teacher_T, logprobs_T), beta=config.beta, kind=config.gate, entropy_T=entropy_T)
    figures["sdar/gate_mean"] = _mean(gate_T, scores)
    figures["sdar/gate_active"] = _mean((gate_T > 0.5).to(gate_T.dtype), scores)
    return sdar_loss(logprobs_T, teacher_T, beta=config.beta, kind=config.gate, entropy_T=entropy_T)


def _mean(values_T: Tensor, scores: Scores) -> Tensor:
    """Return what these tokens add to the mean over all trained tokens of the update."""
    return aggregate(values_T.detach(), scores.layout, scores.totals)
