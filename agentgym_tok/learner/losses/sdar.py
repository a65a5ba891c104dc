"""SDAR: the policy's own likelihood, raised more where a teacher with privileged context endorses the token."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from agentgym_tok.errors import ConfigError

__all__ = ["Gate", "gap", "gate", "sdar_loss"]

Gate: TypeAlias = Literal["gap", "entropy", "soft_or"]


def gap(teacher_T: Tensor, logprobs_T: Tensor) -> Tensor:
    """Return how much more the teacher likes each token than the student does.

        Delta = sg(log pi_T(y_t | s+) - log pi_theta(y_t | s))

    Args:
        teacher_T: float [T], nats; the same weights (those before the update) after the privileged context, from the
            trainer, never from the engine: a constant bias of 0.05 moves the gate by 0.06.
        logprobs_T: float [T], nats; the student's.

    Returns:
        [T], nats, at least float32, detached. 0 where both had the same context.
    """
    wide = torch.promote_types(logprobs_T.dtype, torch.float32)
    return teacher_T.detach().to(wide) - logprobs_T.detach().to(wide)


def gate(gap_T: Tensor, *, beta: float = 5.0, kind: Gate = "gap", entropy_T: Tensor | None = None) -> Tensor:
    """Return how far each token's gate is open, in (0, 1), detached.

        gap      sigmoid(beta Delta)
        entropy  sigmoid(beta h), never below 1/2
        soft_or  sigmoid(beta (1 - (1 - h)(1 - Delta)))

    Neither h nor Delta is normalised: with h > 1 a lower Delta opens the soft-OR gate further.

    Args:
        gap_T: float [T], nats; see `gap`.
        beta: Sharpness; at 0 every gate is 1/2, and the teacher leaves the gradient.
        kind: `gap` is the one that is released; the others are in the paper alone.
        entropy_T: float [T], nats; the student's, over the whole vocabulary.

    Raises:
        ConfigError: A gate of entropy without entropy.

    Source: SDAR (arXiv 2605.15155) section 3; `sdar_utils.py`.
    """
    if kind == "gap":
        return torch.sigmoid(beta * gap_T.detach())
    if entropy_T is None:
        raise ConfigError("this gate needs the student's entropy", where=f"SDAR gate {kind}", got=None)
    h_T = entropy_T.detach().to(gap_T.dtype)
    opening_T = h_T if kind == "entropy" else 1 - (1 - h_T) * (1 - gap_T.detach())
    return torch.sigmoid(beta * opening_T)


def sdar_loss(
    logprobs_T: Tensor,
    teacher_T: Tensor,
    *,
    beta: float = 5.0,
    kind: Gate = "gap",
    entropy_T: Tensor | None = None,
) -> Tensor:
    """Return SDAR's loss of each token; what it is multiplied by (lambda) is 0.01 in the paper.

        l_t = sg(g_t) (sg(log pi_T) - log pi_theta),  gradient -g_t grad log pi_theta

    This is not the gradient of the reverse KL, which is -Delta grad log pi: SDAR always raises the sampled token. Its
    value may be negative, and a falling one is no sign of progress; watch the gap and the gate. A token whose teacher
    has no privileged context has gap 0 and gate 1/2, and still counts, as published.

    Args:
        logprobs_T: float [T], nats; the only argument with a gradient.
        teacher_T: float [T], nats; see `gap`.
        beta: See `gate`.
        kind: See `gate`.
        entropy_T: See `gate`.

    Returns:
        [T], at least float32.

    Source: SDAR (arXiv 2605.15155), Prop. 2 for the gradient. The paper takes the mean over sequences of means over
    tokens, the code `token-mean` of each micro-batch. The gate is detached in both, whatever summaries say (Prop. 5
    shows what happens if it is not). In the code the gate sees the student of the micro-batch at hand, as here; the
    teacher is scored once, before the update.
    """
    gap_T = gap(teacher_T, logprobs_T)
    gate_T = gate(gap_T, beta=beta, kind=kind, entropy_T=entropy_T)
    return gate_T * (teacher_T.detach().to(gap_T.dtype) - logprobs_T.to(gap_T.dtype))
