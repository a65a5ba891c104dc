"""Policy gradients: PPO's clipped surrogate and its relatives, one loss for each token."""

import torch
from torch import Tensor

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.losses.aggregation import Layout

__all__ = ["cispo_loss", "clipped_loss", "gspo_loss", "log_ratios", "nll_loss", "sequence_ratios"]


def log_ratios(logprobs_T: Tensor, old_T: Tensor) -> Tensor:
    """Return log pi_theta - log pi_old, [T], within +-20 as in verl: beyond that, exp is no ratio but an overflow.

    TRL does not clamp.
    """
    return (logprobs_T - old_T.detach()).clamp(-20.0, 20.0)


def clipped_loss(
    logprobs_T: Tensor,
    old_T: Tensor,
    advantage_T: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
) -> Tensor:
    """Return PPO's clipped surrogate, which GRPO, Dr.GRPO, RLOO, REINFORCE++, DAPO and RLSD share.

        r = exp(logp - logp_old);  loss = max(-A r, -A clip(r, 1 - low, 1 + high));  if A < 0: min(loss, -A dual)

    Args:
        logprobs_T: float [T], nats; of the policy being trained.
        old_T: float [T], nats; of the policy before the update. Its ratio to the first is 1 at the first update.
        advantage_T: float [T].
        low: Clip below 1.
        high: Clip above 1; DAPO's clip-higher has 0.28.
        dual: Bound on the loss of tokens of negative advantage: 3 in verl and SDAR's scripts; None is PPO (TRL).

    Returns:
        float [T].

    Raises:
        ConfigError: `dual` is not above 1.

    Source: Schulman et al. 2017 (arXiv 1707.06347) eq. 7; dual clip: Ye et al. 2019 (arXiv 1912.09729); Yu et al. 2025
    (arXiv 2503.14476). TRL's `delta` is another bound: it clamps r itself from above, at either sign of A.
    """
    if dual is not None and dual <= 1:
        raise ConfigError("the dual clip is a ratio above 1", where="clipped_loss", got=dual)
    ratio_T = log_ratios(logprobs_T, old_T).exp()
    loss_T = torch.maximum(-advantage_T * ratio_T, -advantage_T * ratio_T.clamp(1 - low, 1 + high))
    if dual is None:
        return loss_T
    return torch.where(advantage_T < 0, torch.minimum(loss_T, -advantage_T * dual), loss_T)


def sequence_ratios(logprobs_T: Tensor, old_T: Tensor, layout: Layout) -> Tensor:
    """Return each row's ratio, exp of the mean log-ratio over its trained tokens, [R]."""
    return _mean_log_ratios(logprobs_T, old_T, layout).exp()


def gspo_loss(
    logprobs_T: Tensor, old_T: Tensor, advantage_T: Tensor, layout: Layout, *, low: float = 3e-4, high: float = 4e-4
) -> Tensor:
    """Return the clipped surrogate with one ratio for a whole sequence.

        s = exp(mean_t(logp - logp_old));  s_t = sg(s) exp(logp - sg(logp));  loss = max(-A s_t, -A clip(s_t))

    Aggregate with `seq-mean-token-mean`, for which the token form has the gradient of the sequence form.

    Args:
        logprobs_T: float [T], nats.
        old_T: float [T], nats.
        advantage_T: float [T].
        layout: The sequences: a row is one, and must not be cut into two micro-batches.
        low: Clip below 1; ratios of whole sequences move little.
        high: Clip above 1.

    Returns:
        float [T].

    Source: Zheng et al. 2025 (arXiv 2507.18071). verl aggregates as it is told (`token-mean` unless changed) and clamps
    the log of s_t at 10 from above; here that of s stays within +-20.
    """
    log_s_T = _mean_log_ratios(logprobs_T, old_T, layout).detach()[layout.row_T]
    ratio_T = (log_s_T + logprobs_T - logprobs_T.detach()).exp()
    return torch.maximum(-advantage_T * ratio_T, -advantage_T * ratio_T.clamp(1 - low, 1 + high))


def cispo_loss(
    logprobs_T: Tensor, old_T: Tensor, advantage_T: Tensor, *, low: float = 1.0, high: float = 4.0
) -> Tensor:
    """Return REINFORCE weighted by a clipped ratio; no token's gradient is ever cut off.

        loss = -sg(clip(r, 1 - low, 1 + high)) A logp

    Args:
        logprobs_T: float [T], nats.
        old_T: float [T], nats.
        advantage_T: float [T].
        low: Clip below 1; 1 does not, as in TRL.
        high: Clip above 1. TRL's `epsilon_high` is the bound itself: its 5 is 4 here.

    Returns:
        float [T]; its value says nothing, its gradient is -clip(r) A grad logp.

    Source: MiniMax 2025 (arXiv 2506.13585), where only the upper bound is used; verl clips at both sides.
    """
    weight_T = log_ratios(logprobs_T, old_T).exp().clamp(1 - low, 1 + high).detach()
    return -weight_T * advantage_T * logprobs_T


def nll_loss(logprobs_T: Tensor) -> Tensor:
    """Return the negative log-likelihood, of supervised fine-tuning.

        loss = -logp

    Args:
        logprobs_T: float [T], nats.

    Returns:
        float [T], nats.
    """
    return -logprobs_T


def _mean_log_ratios(logprobs_T: Tensor, old_T: Tensor, layout: Layout) -> Tensor:
    """Return each row's mean log-ratio over its trained tokens, [R], within +-20."""
    tokens_R = layout.row_tokens().clamp(min=1).to(logprobs_T.dtype)
    return (layout.sums(logprobs_T - old_T.detach()) / tokens_R).clamp(-20.0, 20.0)
