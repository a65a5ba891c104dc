"""Training rows as a Parquet file, which opens with Hugging Face `datasets` (extra `parquet`)."""

import json
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from agentgym_tok.trace.drafts import new_file
from agentgym_tok.trace.exchange.arrow_schema import rows_schema
from agentgym_tok.trace.exchange.parquet_file import ParquetFile
from agentgym_tok.trace.records import Row
from agentgym_tok.trace.rows import Merge, Objective, Weighting, rows
from agentgym_tok.trace.store import TraceStore
from agentgym_tok.types import Support

__all__ = ["export_rows"]

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def export_rows(
    run: str | Path,
    out: str | Path,
    *,
    objective: Objective = "rl",
    merge: Merge = "prefix",
    weighting: Weighting = "rollout",
) -> int:
    """Write the training rows of a run as one Parquet file.

    The file's schema has metadata: `run`, the run's document, and `rows`, the options, both JSON.

    Args:
        run: Folder of the run.
        out: The file; nothing may stand there.
        objective: See `rows`.
        merge: See `rows`.
        weighting: See `rows`.

    Returns:
        Number of rows.

    Raises:
        TraceError: There is no trace, or the file cannot be written.
        TraceCorrupt: A record is damaged or missing.
        MissingExtra: pyarrow is not installed.
    """
    count = 0
    options = {"objective": objective, "merge": merge, "weighting": weighting}
    with TraceStore(run, mode="r") as store, new_file(Path(out)) as draft:
        schema = rows_schema().with_metadata({"run": store.meta.model_dump_json(), "rows": json.dumps(options)})
        with ParquetFile(draft, schema) as file:
            for episode in store.episodes():
                for row in rows(episode, objective=objective, merge=merge, weighting=weighting):
                    file.add(_row(row))
                    count += 1
    return count


def _row(row: Row) -> dict[str, Any]:
    return {
        "ids": row.ids_T,
        "mask": row.mask_T,
        "logprobs": row.logprobs_T,
        "version": row.version_T,
        "turn": row.turn_T,
        "temperature": row.temperature_T,
        "reward": row.reward,
        "turn_rewards": row.turn_rewards_N,
        "anchor": [_valid_text(text) for text in row.anchor_N],
        "valid": row.valid_N,
        "rollout_id": row.rollout_id,
        "group_id": row.group_id,
        "task": row.task,
        "parent_rollout": row.parent_rollout,
        "weight": row.weight,
        "status": row.status,
        "versions": [_valid_text(text) for text in row.versions],
        "experts": None if row.experts_T_L_K is None else row.experts_T_L_K.tolist(),
        "support": None if row.support is None else _ragged(row.support),
    }


def _ragged(support: Support) -> list[Any]:
    return np.split(support.ids_S, np.cumsum(support.counts_T)[:-1]) if len(support.counts_T) else []


def _valid_text(text: str) -> str:
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
