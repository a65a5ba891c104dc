"""From what a model says to what a loss is made of, a piece of the tokens at a time."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from agentgym_tok.learner.forward import Forward
from agentgym_tok.learner.losses import Divergence, entropy, log_distribution, opsd_full_loss, pick

__all__ = ["TokenScores", "token_scores"]

_PIECE = 2**25
"""Most logits of a piece: more than one are computed again for their gradients, so that only one is ever held."""
_ON_CPU = 1024
"""Most tokens of a piece on a CPU: logits over few ids then stay in its caches, and a quarter of the time is saved."""


class TokenScores(NamedTuple):
    """Hold the scores of K tokens, [K], nats, at least float32; the divergence where a teacher was given."""

    logprobs_K: Tensor
    entropy_K: Tensor
    divergence_K: Tensor | None


def token_scores(
    forward: Forward,
    features_K_F: Tensor,
    ids_K: Tensor,
    temperature_K: Tensor,
    *,
    entropy_gradient: bool = False,
    teacher_K_F: Tensor | None = None,
    divergence: Divergence = "reverse_kl",
) -> TokenScores:
    """Score tokens.

    Args:
        forward: Knows the head.
        features_K_F: float [K, F], of `Forward.features`.
        ids_K: int64 [K], the tokens.
        temperature_K: float [K].
        entropy_gradient: The entropy is trained, and not only watched.
        teacher_K_F: float [K, F], what the teacher says of the same tokens; gets no gradient.
        divergence: Which one to the teacher.
    """

    def score(features: Tensor, ids: Tensor, temperature: Tensor, teacher: Tensor | None) -> tuple[Tensor, ...]:
        logprobs = log_distribution(forward.logits(features), temperature)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            h = entropy(logprobs)
        if teacher is None:
            return pick(logprobs, ids), h
        with torch.no_grad():
            target = log_distribution(forward.logits(teacher), temperature)
        return pick(logprobs, ids), h, opsd_full_loss(logprobs, target, divergence)

    count = len(ids_K)
    width = max(1, _PIECE // forward.vocab_size)
    if features_K_F.device.type == "cpu":
        width = min(width, _ON_CPU)
    parts: list[tuple[Tensor, ...]] = []
    for start in range(0, count, width):
        piece = slice(start, start + width)
        given = (
            features_K_F[piece],
            ids_K[piece],
            temperature_K[piece],
            None if teacher_K_F is None else teacher_K_F[piece],
        )
        again = count > width and torch.is_grad_enabled()
        parts.append(checkpoint(score, *given, use_reentrant=False) if again else score(*given))
    scored = [torch.cat(column) for column in zip(*parts, strict=True)]
    return TokenScores(scored[0], scored[1], scored[2] if len(scored) > 2 else None)
