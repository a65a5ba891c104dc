"""Tinker: `Datum`, whose targets are the ids shifted left by one.

Checked against tinker 0.38.0. The service's losses are sums over tokens and know no mask: a token counts by its
advantage, which is 0 where nothing is trained. The cookbook's `mask` must be taken out before `forward_backward`.
"""

from typing import Any

import numpy as np

from agentgym_tok.learner.adapters.packages import imported
from agentgym_tok.learner.adapters.segments import check_row
from agentgym_tok.trace import Row

__all__ = ["datum", "datum_fields"]


def datum_fields(row: Row, *, mask: bool = False) -> tuple[list[int], dict[str, np.ndarray[Any, Any]]]:
    """Return what a datum is made of.

    Args:
        row: The row, T tokens.
        mask: Add the cookbook's `mask`.

    Returns:
        The T-1 input ids; and by name, each [T-1]: `target_tokens` (int64, the id that follows), `logprobs` (float32,
        nats, of the target), `advantages` (float32, of the target, only where the row has some) and `mask` (float32).

    Raises:
        InvalidIds, InvalidLogprobs, ConfigError: See `segments.check_row`.
    """
    check_row(row)
    target_mask = row.mask_T[1:]
    fields: dict[str, np.ndarray[Any, Any]] = {
        "target_tokens": row.ids_T[1:].astype(np.int64),
        "logprobs": np.where(target_mask, row.logprobs_T[1:], np.float32(0)),
    }
    if row.advantage_T is not None:
        fields["advantages"] = np.where(target_mask, row.advantage_T[1:], np.float32(0))
    if mask:
        fields["mask"] = target_mask.astype(np.float32)
    return row.ids_T[:-1].tolist(), fields


def datum(row: Row, *, mask: bool = False) -> Any:
    """Return a row as `tinker.Datum`.

    Args:
        row: The row.
        mask: Add the cookbook's `mask`.

    Raises:
        MissingExtra: tinker is not installed.
        InvalidIds, InvalidLogprobs, ConfigError: See `segments.check_row`.
    """
    tinker = imported("tinker", "pip install tinker")
    tokens, fields = datum_fields(row, mask=mask)
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens), loss_fn_inputs=fields)
