"""An objective by its name: which terms, with which coefficients."""

from collections.abc import Mapping
from typing import Literal, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from agentgym_tok.config import Config
from agentgym_tok.learner.losses.aggregation import Aggregation
from agentgym_tok.learner.losses.distillation import Divergence
from agentgym_tok.learner.losses.importance import Importance
from agentgym_tok.learner.losses.kl import Estimate
from agentgym_tok.learner.losses.sdar import Gate

__all__ = ["OBJECTIVES", "Distillation", "LossConfig", "PolicyTerm"]

PolicyTerm: TypeAlias = Literal["clip", "gspo", "cispo", "nll"]
Distillation: TypeAlias = Literal["none", "sdar", "opsd_pg", "opsd_full", "opsd_paper", "skill_sd", "rlsd"]


class LossConfig(Config):
    """Say what is minimised; `OBJECTIVES` has what is published.

        policy_coefficient * policy + kl_coefficient * KL - entropy_coefficient * h
            + distillation_coefficient * distillation

    All terms have one aggregation, and count the same tokens. A term whose coefficient is 0 is not computed.

    Args:
        policy: `clip` is PPO's surrogate, which GRPO, DAPO, RLOO and so on share: those differ in advantages,
            aggregation and clips. `nll` is supervised: it has no advantages, no ratio, and no importance weights.
        policy_coefficient: 0 distils only.
        clip_low: Below 1; 1 does not clip there.
        clip_high: Above 1.
        dual_clip: Of `clip`; 3 in verl and SDAR's scripts, None is plain PPO.
        aggregation: See `aggregate`.
        horizon: Of `seq-mean-token-sum-norm`, tokens.
        kl: The estimate of the KL to the reference; in the advantage it is k1.
        kl_as: A term of the `loss`, or a part of the `advantage` of each token, see `kl_advantages`.
        kl_coefficient: 0 needs no reference.
        entropy_coefficient: Of the bonus.
        distillation: `rlsd` is no term of its own: it changes the advantages, and its coefficient is the strength.
        distillation_coefficient: Lambda.
        gate: Of SDAR.
        beta: Of SDAR's gate.
        divergence: Of `opsd_full`; who has the logits computes `Scores.divergence_T` by it.
        importance: Corrections of the policy term; their weights multiply.
    """

    policy: PolicyTerm = "clip"
    policy_coefficient: float = Field(default=1.0, ge=0)
    clip_low: float = Field(default=0.2, ge=0, le=1)
    clip_high: float = Field(default=0.2, ge=0)
    dual_clip: float | None = Field(default=None, gt=1)
    aggregation: Aggregation = "token-mean"
    horizon: PositiveInt | None = None
    kl: Estimate = "k3"
    kl_as: Literal["loss", "advantage"] = "loss"
    kl_coefficient: float = Field(default=0.0, ge=0)
    entropy_coefficient: float = 0.0
    distillation: Distillation = "none"
    distillation_coefficient: float = Field(default=0.0, ge=0)
    gate: Gate = "gap"
    beta: float = Field(default=5.0, ge=0)
    divergence: Divergence = "reverse_kl"
    importance: tuple[Importance, ...] = ()

    @model_validator(mode="after")
    def _strength(self) -> Self:
        if self.distillation == "rlsd" and self.distillation_coefficient > 1:
            raise ValueError("RLSD's strength above 1 could turn advantages round")
        return self


_SCRIPTS = LossConfig(dual_clip=3.0, kl_coefficient=0.01, entropy_coefficient=0.001)
"""GRPO as SDAR's scripts have it for ALFWorld and WebShop; for Search-QA the coefficient of KL is 0.001."""


def _scripts(distillation: Distillation, coefficient: float, **changed: object) -> LossConfig:
    return _SCRIPTS.model_copy(
        update={"distillation": distillation, "distillation_coefficient": coefficient, **changed}
    )


OBJECTIVES: Mapping[str, LossConfig] = {
    "sft": LossConfig(policy="nll"),
    "ppo": LossConfig(),
    "grpo": LossConfig(aggregation="seq-mean-token-mean", kl_coefficient=0.04),
    "dr_grpo": LossConfig(aggregation="seq-mean-token-sum-norm"),
    "dapo": LossConfig(clip_high=0.28),
    "gspo": LossConfig(policy="gspo", clip_low=3e-4, clip_high=4e-4, aggregation="seq-mean-token-mean"),
    "cispo": LossConfig(policy="cispo", clip_low=1.0, clip_high=4.0),
    "verl_agent_grpo": _SCRIPTS,
    "skill_grpo": _SCRIPTS,
    "sdar": _scripts("sdar", 0.01),
    "opsd": _scripts("sdar", 0.01, policy_coefficient=0.0),
    "grpo_opsd": _scripts("sdar", 0.01, beta=0.0),
    "grpo_opsd_paper": _scripts("opsd_paper", 0.01),
    "skill_sd": _scripts("skill_sd", 0.001),
    "rlsd": _scripts("rlsd", 0.5),
    "opsd_pg": LossConfig(policy_coefficient=0.0, distillation="opsd_pg", distillation_coefficient=1.0),
    "opsd_full": LossConfig(policy_coefficient=0.0, distillation="opsd_full", distillation_coefficient=1.0),
    "opd": LossConfig(policy_coefficient=0.0, distillation="opsd_pg", distillation_coefficient=1.0),
}
"""Published objectives. Some are one loss on other data:

* `skill_grpo`: the student's own prompts have the skills. `opd`: the teacher is another model of the same vocabulary.
* `opsd` and `grpo_opsd` are what SDAR's released code calls so; `grpo_opsd_paper` is what its paper writes. In neither
  `grpo_opsd` does the teacher reach the gradient.
* `dr_grpo` needs a `horizon`. `cispo` has TRL's recommended bound of 5, as a distance from 1.
"""
