"""Estimates of KL(pi_theta || reference) from the sampled token alone, and their two uses."""

from typing import Literal, TypeAlias

from torch import Tensor

__all__ = ["Estimate", "kl_advantages", "kl_loss"]

Estimate: TypeAlias = Literal["k1", "k2", "k3", "k1+", "k3+"]


def kl_loss(logprobs_T: Tensor, reference_T: Tensor, estimate: Estimate = "k3") -> Tensor:
    """Return an estimate of the KL divergence to a reference, to be added to a loss.

    With x = logp - logp_ref:

        estimate   value             gradient as a loss      which is, in expectation over the policy's own tokens
        k1         x                 grad logp               nothing at all: 0
        k2         x^2 / 2           x grad logp             that of KL(theta || ref): the right one
        k3         exp(-x) - 1 + x   (1 - exp(-x)) grad logp that of KL(ref || theta)
        k1+, k3+   k1, k3            x grad logp             the right one

    Args:
        logprobs_T: float [T], nats; of the policy being trained.
        reference_T: float [T], nats; gets no gradient.
        estimate: `k3` is what GRPO, verl (`low_var_kl`) and TRL have in their losses; `k2` and `k3+` are right.

    Returns:
        float [T], nats.

    Source: Schulman 2020 (joschu.net/blog/kl-approx.html); verl `kl_penalty`, which clamps x to +-20, as is done here,
    and k3 to +-10, which is not: where that bites, the gradient is gone. TRL 1.16 multiplies its k3 by the ratio
    (`use_bias_correction_kl`), which at a ratio of 1 has the gradient of k2.
    """
    x_T = logprobs_T - reference_T.detach()
    if estimate == "k1":
        return x_T
    square_T = x_T.square() / 2
    if estimate == "k2":
        return square_T
    if estimate == "k1+":
        return square_T - square_T.detach() + x_T.detach()
    x_T = x_T.clamp(-20.0, 20.0)
    value_T = (-x_T).expm1() + x_T
    return value_T if estimate == "k3" else square_T - square_T.detach() + value_T.detach()


def kl_advantages(logprobs_T: Tensor, reference_T: Tensor, coefficient: float) -> Tensor:
    """Return what a KL penalty in the reward adds to the advantage of each token: the right use of k1.

        A_t += -coefficient * sg(logp - logp_ref)

    A policy loss with this advantage has, on-policy, the gradient of coefficient * KL(theta || ref), token by token.
    What a token does to later divergences is left out, as Tinker does; `discounted_returns` can count it.

    Args:
        logprobs_T: float [T], nats; of the policy that the ratio is taken to (`old_T`).
        reference_T: float [T], nats; of a reference, or of a teacher.
        coefficient: Reward lost for each nat.

    Returns:
        float [T], detached.
    """
    return -coefficient * (logprobs_T - reference_T).detach()
