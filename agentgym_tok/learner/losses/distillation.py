"""Distillation on the student's own tokens: from itself with privileged context, or from another model."""

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from agentgym_tok.learner.losses.kl import kl_loss
from agentgym_tok.learner.losses.policy import log_ratios

__all__ = [
    "Divergence",
    "opsd_full_loss",
    "opsd_paper_loss",
    "opsd_pg_loss",
    "rlsd_advantages",
    "skill_sd_loss",
]

Divergence: TypeAlias = Literal["reverse_kl", "forward_kl", "jsd"]


def opsd_pg_loss(logprobs_T: Tensor, teacher_T: Tensor, old_T: Tensor | None = None) -> Tensor:
    """Return the sampled-token reverse KL to a teacher, with its true gradient.

        loss = r sg(logp - teacher),  r = exp(logp - logp_old);  gradient -r Delta grad logp

    A policy gradient whose advantage is Delta = teacher - logp, as in Tinker and prime-rl. The value estimates
    KL(student || teacher) without bias, and the gradient its gradient. With a separate teacher model of the same
    vocabulary this is on-policy distillation.

    Args:
        logprobs_T: float [T], nats; with gradient.
        teacher_T: float [T], nats.
        old_T: float [T], nats; of the policy that drew the tokens; None says that it is this one (r = 1).

    Returns:
        float [T], nats.

    Source: Thinking Machines 2025, "On-Policy Distillation"; OPSD (arXiv 2601.18734), sampled-token form.
    """
    old_T = logprobs_T if old_T is None else old_T
    return log_ratios(logprobs_T, old_T).exp() * (logprobs_T - teacher_T).detach()


def opsd_full_loss(logprobs_T_V: Tensor, teacher_T_V: Tensor, divergence: Divergence = "reverse_kl") -> Tensor:
    """Return the divergence between the two whole distributions at each place.

        reverse_kl   sum_v p (log p - log q)         p: student
        forward_kl   sum_v q (log q - log p)         q: teacher
        jsd          half the sum of both KLs to (p + q) / 2; at most ln 2

    Args:
        logprobs_T_V: float [T, V], nats; of `log_distribution`.
        teacher_T_V: float [T, V], nats; gets no gradient.
        divergence: SDAR's ablation on a 7B model finds reverse KL best, then JSD, then forward KL.

    Returns:
        float [T], nats.

    Source: OPSD (arXiv 2601.18734); TRL's GKD has a weighted JSD, of which this is the middle.
    """
    least = torch.finfo(logprobs_T_V.dtype).min  # ids without probability: 0 times this is 0, 0 times -inf is not
    p_T_V, q_T_V = logprobs_T_V.clamp(min=least), teacher_T_V.detach().clamp(min=least)
    if divergence == "reverse_kl":
        return _kl(p_T_V, q_T_V)
    if divergence == "forward_kl":
        return _kl(q_T_V, p_T_V)
    middle_T_V = torch.logaddexp(p_T_V, q_T_V) - math.log(2)
    return (_kl(p_T_V, middle_T_V) + _kl(q_T_V, middle_T_V)) / 2


def _kl(first_T_V: Tensor, second_T_V: Tensor) -> Tensor:
    return (first_T_V.exp() * (first_T_V - second_T_V)).sum(-1)


def opsd_paper_loss(logprobs_T: Tensor, teacher_T: Tensor) -> Tensor:
    """Return the loss that the algorithms OPSD and GRPO+OPSD of SDAR's paper write down.

        loss = logp - sg(teacher),  gradient +grad logp

    This is k1 as a loss, and no reverse KL: the teacher is not in its gradient, which lowers the likelihood of
    whatever was sampled and is 0 in expectation. It is here to reproduce that text. The released code has another loss
    under the same names, `sdar_loss`: alone and with beta 5 for OPSD, with beta 0 for GRPO+OPSD (again without the
    teacher, and of the opposite sign). For the reverse KL take `opsd_pg_loss` or `opsd_full_loss`.

    Args:
        logprobs_T: float [T], nats; with gradient.
        teacher_T: float [T], nats.

    Returns:
        float [T], nats.

    Source: SDAR (arXiv 2605.15155), appendix algorithms; ZJU-REAL/SDAR#16.
    """
    return kl_loss(logprobs_T, teacher_T, "k1")


def skill_sd_loss(logprobs_T: Tensor, teacher_T: Tensor, old_T: Tensor) -> Tensor:
    """Return Skill-SD's loss: k3 to the teacher, weighted by a ratio that is not detached.

        rho k3,  rho = min(exp(logp - logp_old), 10),  k3 = exp(-l) - 1 + l,  l = logp - teacher, -l <= 20

    At rho = 1 its gradient is l grad logp, that of the reverse KL. Lambda is 0.001 in SDAR's comparison.

    Args:
        logprobs_T: float [T], nats; with gradient.
        teacher_T: float [T], nats.
        old_T: float [T], nats.

    Returns:
        float [T], nats.

    Source: Skill-SD (arXiv 2604.10674) and SDAR's repository. The paper also makes skills of trajectories and renews
    the teacher, which that repository does not.
    """
    l_T = (logprobs_T - teacher_T.detach()).clamp(min=-20.0)
    rho_T = (logprobs_T - old_T.detach()).clamp(max=20.0).exp().clamp(max=10.0)
    return rho_T * ((-l_T).expm1() + l_T)


@torch.no_grad()
def rlsd_advantages(
    advantage_T: Tensor, teacher_T: Tensor, old_T: Tensor, *, strength: float = 0.5, clip: float = 0.2
) -> Tensor:
    """Return advantages that a teacher has stretched or shrunk, never turned round: RLSD.

        A_t = A ((1 - strength) + strength clip(exp(sign(A) D), 1 - clip, 1 + clip)),  D = teacher - logp_old

    They go into `clipped_loss`. At strength 0 this is GRPO.

    Args:
        advantage_T: float [T].
        teacher_T: float [T], nats.
        old_T: float [T], nats.
        strength: 0.5 in the paper, falling linearly to 0 in 100 steps; the schedule is the loop's.
        clip: How far a weight may lie from 1.

    Returns:
        float [T], detached.

    Source: RLSD (arXiv 2604.03128); SDAR's repository.
    """
    factor_T = (advantage_T.sign() * (teacher_T - old_T).clamp(-20.0, 20.0)).exp().clamp(1 - clip, 1 + clip)
    return advantage_T * ((1 - strength) + strength * factor_T)
