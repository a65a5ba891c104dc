"""From one loss for each token to one number, with denominators that know the whole batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from agentgym_tok.errors import ConfigError
from agentgym_tok.trace import Row

__all__ = ["Aggregation", "Layout", "Totals", "aggregate"]

Aggregation: TypeAlias = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Say which tokens of a pack are trained, and whose they are.

    Args:
        mask_T: bool [T], the trained tokens. Where it is false (prompts, what the world said, padding) nothing counts.
        row_T: int64 [T], the row of each token, on the axis R.
        weight_R: float [R], how much of a sequence each row is (`Row.weight`): 1 makes every row a sequence, weights
            that sum to 1 over a rollout make the rollout one; 0 is a row that only fills up.
    """

    mask_T: Tensor
    row_T: Tensor
    weight_R: Tensor

    @classmethod
    def of(cls, rows: Sequence[Row], device: torch.device | str = "cpu") -> Self:
        """Lay rows one behind the other."""
        lengths = torch.tensor([len(row.ids_T) for row in rows])
        mask_T = torch.from_numpy(np.concatenate([row.mask_T for row in rows]))
        weight_R = torch.tensor([row.weight for row in rows], dtype=torch.float64)
        row_T = torch.repeat_interleave(torch.arange(len(rows)), lengths)
        return cls(mask_T.to(device), row_T.to(device), weight_R.to(device))

    def sums(self, values_T: Tensor) -> Tensor:
        """Sum over each row's trained tokens, [R]."""
        kept_T = torch.where(self.mask_T, values_T, 0)
        return torch.zeros(len(self.weight_R), dtype=kept_T.dtype, device=kept_T.device).index_add(
            0, self.row_T, kept_T
        )

    def row_tokens(self) -> Tensor:
        """Count each row's trained tokens, float64 [R]."""
        return self.sums(torch.ones(self.mask_T.shape, dtype=torch.float64, device=self.mask_T.device))

    def totals(self) -> "Totals":
        """Count what this layout adds to the denominators; those of a batch are the sum over its packs."""
        tokens_R = self.row_tokens()
        counts_R = (tokens_R > 0) & (self.weight_R > 0)
        return Totals(float(tokens_R[counts_R].sum()), float(self.weight_R[counts_R].sum(dtype=torch.float64)))


@dataclass(frozen=True, slots=True)
class Totals:
    """Hold the denominators of one update: over all its micro-batches, and all its processes.

    Args:
        tokens: Trained tokens.
        sequences: Sum of the weights of the rows that have any.
    """

    tokens: float
    sequences: float

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(self.tokens + other.tokens, self.sequences + other.sequences)


def aggregate(
    loss_T: Tensor, layout: Layout, totals: Totals, how: Aggregation = "token-mean", *, horizon: float | None = None
) -> Tensor:
    """Return what these tokens add to the loss of the whole update.

        token-mean                sum over tokens / all tokens
        seq-mean-token-mean       sum over rows of weight * mean over its tokens / all sequences
        seq-mean-token-sum        sum over tokens / all sequences
        seq-mean-token-sum-norm   sum over tokens / (all sequences * horizon)

    The loss of an update is the sum over its micro-batches, however its rows are dealt out (a row stays whole): divide
    by nothing afterwards. Where processes average their gradients, multiply by their number. Rows without trained
    tokens, and rows of weight 0, are in no numerator and in no denominator.

    Args:
        loss_T: float [T]; what stands where the mask is false is never looked at, and gets no gradient.
        layout: The pack.
        totals: The denominators of the whole update.
        how: GRPO's paper has `seq-mean-token-mean`, DAPO, verl and TRL `token-mean`, Dr.GRPO `seq-mean-token-sum-norm`.
        horizon: Dr.GRPO's constant, tokens: TRL's `max_completion_length`; verl's, unless set, is the width of the
            padded batch.

    Returns:
        A scalar, in `loss_T`'s dtype.

    Raises:
        ConfigError: `seq-mean-token-sum-norm` without a horizon.

    Source: verl `agg_loss`. The fork inside SDAR's repository takes the denominator of each micro-batch, so that its
    results depend on how rows are split.
    """
    if how == "seq-mean-token-sum-norm" and horizon is None:
        raise ConfigError(
            "a constant horizon is needed", where=how, fix="give the most tokens that a sequence can have"
        )
    weight_R = layout.weight_R.to(torch.float64)
    is_counted_R = (weight_R > 0).to(torch.float64)
    sequences = totals.sequences or 1.0
    if how == "token-mean":
        share_R = is_counted_R / (totals.tokens or 1.0)
    elif how == "seq-mean-token-mean":
        share_R = weight_R / layout.row_tokens().clamp(min=1) / sequences
    elif how == "seq-mean-token-sum":
        share_R = is_counted_R / sequences
    else:
        share_R = is_counted_R / sequences / (horizon or 1.0)
    return torch.where(layout.mask_T, loss_T, 0).mul(share_R.to(loss_T.dtype)[layout.row_T]).sum()
