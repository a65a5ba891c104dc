"""What the rows of an update look like: how old, how far from the trainer, and what of them is not used."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from agentgym_tok.learner.losses import mismatch
from agentgym_tok.learner.staleness import UNKNOWN_LAG, weight_lags
from agentgym_tok.learner.trained_row import TrainedRow, joined
from agentgym_tok.trace import Row

__all__ = ["mismatch_figures", "row_figures"]


def row_figures(given: Sequence[Row], rows: Sequence[TrainedRow], updates: Mapping[str, int]) -> dict[str, float]:
    """Count rows, and say how many updates behind their tokens were drawn.

    Args:
        given: All rows of the batch.
        rows: Those that are trained.
        updates: As for `weight_lags`.

    Returns:
        `rows/given`, `rows/trained`, `rows/experts_ignored` and `rows/support_ignored` (rows that say which experts a
        mixture chose, or which ids could be drawn: no forward pass here replays either); and over trained tokens
        `staleness/mean` and `staleness/max` (updates, of those whose weights are known) and
        `staleness/unknown_share`.
    """
    lag_K = np.concatenate([weight_lags(row.row, updates)[row.row.mask_T] for row in rows])
    known_K = lag_K[lag_K != UNKNOWN_LAG]
    return {
        "rows/given": float(len(given)),
        "rows/trained": float(len(rows)),
        "rows/experts_ignored": float(sum(row.experts_T_L_K is not None for row in given)),
        "rows/support_ignored": float(sum(row.support is not None for row in given)),
        "staleness/mean": float(known_K.mean()) if len(known_K) else 0.0,
        "staleness/max": float(known_K.max(initial=0)),
        "staleness/unknown_share": 1 - len(known_K) / len(lag_K),
    }


def mismatch_figures(rows: Sequence[TrainedRow], old: Sequence[Tensor]) -> dict[str, float]:
    """Say how far the trainer lies from the engines, see `losses.mismatch`; nothing of rows without their numbers.

    Args:
        rows: The rows.
        old: float [K] of each, nats; of the trainer, before the update.

    Returns:
        `mismatch/k3`, `mismatch/perplexity_ratio`, `mismatch/max_gap`, and `mismatch/ess_share`, the effective sample
        size over the number of tokens.
    """
    known = [place for place, row in enumerate(rows) if row.rollout_K.any()]
    if not known:
        return {}
    old_K = torch.cat([old[place] for place in known])
    rollout_K = joined([rows[place].rollout_K for place in known], old_K.device)
    found = mismatch(old_K, rollout_K, torch.ones(len(old_K), dtype=torch.bool, device=old_K.device))
    named = {f"mismatch/{name}": float(value) for name, value in found.items()}
    named["mismatch/ess_share"] = named.pop("mismatch/ess") / len(old_K)
    return named
