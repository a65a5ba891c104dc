"""The gradients of one optimizer step, summed over passes that fit into memory."""

from collections.abc import Sequence

import torch
from torch import Tensor

from agentgym_tok.learner.forward import Forward
from agentgym_tok.learner.losses import Layout, LossConfig, Scores, Totals, merge_figures, total_loss
from agentgym_tok.learner.packing import deal
from agentgym_tok.learner.token_scores import token_scores
from agentgym_tok.learner.trained_row import TrainedRow, joined

__all__ = ["accumulate"]


def accumulate(
    forward: Forward, rows: Sequence[TrainedRow], loss: LossConfig, budget: int, *, taught: bool
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Add the gradients of a loss to those of the model.

    The denominators are those of all rows, so that neither the budget nor the rows' order is in the result.

    Args:
        forward: The model.
        rows: All rows of the step; each trains something, and has a weight above 0.
        loss: The objective.
        budget: Most tokens of a pass.
        taught: A teacher scored what was sampled; a row without its scores has a gap of 0 to the policy before the
            update.

    Returns:
        Figures, see `total_loss`; and for each row the log-probabilities of its tokens, float [K], nats.
    """
    totals = sum((_layout([row], forward.device).totals() for row in rows), Totals(0.0, 0.0))
    parts: list[dict[str, Tensor]] = []
    found: list[Tensor] = [torch.zeros(0)] * len(rows)
    for places in deal([row.asked for row in rows], budget, shared=forward.packed):
        figures, logprobs = _one_pass(forward, [rows[place] for place in places], loss, totals, taught=taught)
        parts.append(figures)
        for place, part_K in zip(places, logprobs, strict=True):
            found[place] = part_K
    return merge_figures(parts), found


def _one_pass(
    forward: Forward, rows: Sequence[TrainedRow], loss: LossConfig, totals: Totals, *, taught: bool
) -> tuple[dict[str, Tensor], Sequence[Tensor]]:
    device = forward.device
    teacher_K_F = None
    if loss.distillation == "opsd_full" and loss.distillation_coefficient:
        with torch.no_grad():
            teacher_K_F = forward.features([row.teacher or row.asked for row in rows])
    scored = token_scores(
        forward,
        forward.features([row.asked for row in rows]),
        joined([row.ids_K for row in rows], device),
        joined([row.temperature_K for row in rows], device),
        entropy_gradient=loss.entropy_coefficient != 0,
        teacher_K_F=teacher_K_F,
        divergence=loss.divergence,
    )
    now = torch.split(scored.logprobs_K.detach(), [len(row.ids_K) for row in rows])
    old = [row.scores.get("old", own) for row, own in zip(rows, now, strict=True)]
    teacher = [row.scores.get("teacher", before) for row, before in zip(rows, old, strict=True)]
    references = [row.scores["reference"] for row in rows if "reference" in row.scores]
    scores = Scores(
        layout=_layout(rows, device),
        totals=totals,
        logprobs_T=scored.logprobs_K,
        old_T=torch.cat(old),
        advantage_T=joined([row.advantage_K for row in rows], device),
        rollout_T=joined([row.rollout_K for row in rows], device),
        reference_T=torch.cat(references) if len(references) == len(rows) else None,
        teacher_T=torch.cat(teacher) if taught else None,
        entropy_T=scored.entropy_K,
        divergence_T=scored.divergence_K,
    )
    value, figures = total_loss(scores, loss)
    torch.autograd.backward(value)
    return figures, now


def _layout(rows: Sequence[TrainedRow], device: torch.device) -> Layout:
    """Lay the trained tokens of rows one behind the other."""
    counts_R = torch.tensor([len(row.ids_K) for row in rows])
    row_T = torch.repeat_interleave(torch.arange(len(rows)), counts_R)
    weight_R = torch.tensor([row.row.weight for row in rows], dtype=torch.float64)
    return Layout(torch.ones(len(row_T), dtype=torch.bool, device=device), row_T.to(device), weight_R.to(device))
