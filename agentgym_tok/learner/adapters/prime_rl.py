"""prime-rl: `TrainingSample`, a flat sequence whose streams all have the length of its ids.

Checked against prime-rl 0.8.0 (commit 559b447). The struct is read by position, so that the names here are passed by
keyword. Experts are left out: rows say 0 where they do not know them, and the trainer would replay that.
"""

from typing import Any

import numpy as np

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.packages import imported
from agentgym_tok.learner.adapters.segments import check_row
from agentgym_tok.trace import Row

__all__ = ["sample_fields", "training_sample"]


def sample_fields(row: Row, *, env_name: str) -> dict[str, Any]:
    """Return what a training sample is made of.

    Args:
        row: The row, T tokens.
        env_name: What the trainer's figures call the world.

    Returns:
        Lists of T: `token_ids`, `mask`, `logprobs` (nats, 0 where nothing is trained), `temperatures`, `advantages`
        (None where the row has none: the trainer then has to assign them); and `env_name`.

    Raises:
        ConfigError: A trained token was drawn at temperature 0, by which the trainer would divide.
        InvalidIds, InvalidLogprobs: See `segments.check_row`.
    """
    check_row(row)
    if not row.temperature_T[row.mask_T].all():
        raise ConfigError(
            "a greedy turn has no gradient at its temperature",
            where=f"row of rollout {row.rollout_id}",
            got="temperature 0",
            expected="above 0",
        )
    mask_T = row.mask_T
    return {
        "token_ids": row.ids_T.tolist(),
        "mask": mask_T.tolist(),
        "logprobs": np.where(mask_T, row.logprobs_T, np.float32(0)).tolist(),
        "temperatures": row.temperature_T.tolist(),
        "env_name": env_name,
        "advantages": None if row.advantage_T is None else np.where(mask_T, row.advantage_T, np.float32(0)).tolist(),
    }


def training_sample(row: Row, *, env_name: str) -> Any:
    """Return a row as prime-rl's `TrainingSample`.

    Args:
        row: The row.
        env_name: What the trainer's figures call the world.

    Raises:
        MissingExtra: prime-rl is not installed.
        InvalidIds, InvalidLogprobs, ConfigError: See `sample_fields`.
    """
    types = imported("prime_rl.transports.rollouts.types", "install prime-rl from its repository; it is on no index")
    return types.TrainingSample(**sample_fields(row, env_name=env_name))
