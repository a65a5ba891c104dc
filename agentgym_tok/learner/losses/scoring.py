"""From logits to what losses are made of: log-probabilities of the sampled ids, and entropy."""

import torch
from torch import Tensor

__all__ = ["entropy", "log_distribution", "pick"]


def log_distribution(logits_T_V: Tensor, temperature_T: Tensor | float = 1.0) -> Tensor:
    """Return log-probabilities over the whole vocabulary, at the temperature that the tokens were drawn at.

    Args:
        logits_T_V: float [T, V]; row t is what the model said at the place BEFORE token t. This is the one place
            where the shift by one happens.
        temperature_T: float [T] or one number; `Row.temperature_T`, which has 1 where nothing is trained.

    Returns:
        [T, V], nats; at least float32, because differences of bfloat16 log-probabilities lose two or three digits.
    """
    wide = torch.promote_types(logits_T_V.dtype, torch.float32)
    heat = torch.as_tensor(temperature_T, dtype=wide, device=logits_T_V.device).reshape(-1, 1)
    return torch.log_softmax(logits_T_V.to(wide) / heat, dim=-1)


def pick(logprobs_T_V: Tensor, ids_T: Tensor) -> Tensor:
    """Return the log-probability of each id, [T], nats.

    Args:
        logprobs_T_V: float [T, V], of `log_distribution`.
        ids_T: int [T], the sampled ids.
    """
    return logprobs_T_V.gather(1, ids_T.to(torch.int64)[:, None])[:, 0]


def entropy(logprobs_T_V: Tensor) -> Tensor:
    """Return the entropy of each distribution, [T], nats.

        h = -sum_v p_v log p_v

    An id of probability 0 (log-probability -inf) adds nothing.

    Args:
        logprobs_T_V: float [T, V], of `log_distribution`.
    """
    return -(logprobs_T_V.exp() * logprobs_T_V.clamp(min=torch.finfo(logprobs_T_V.dtype).min)).sum(-1)
