"""Which options shape the results of an evaluation."""

from collections.abc import Mapping
from typing import Any

__all__ = ["SAME_SCORE", "shaping"]

SAME_SCORE = frozenset(
    {
        *("out", "resume", "dry_run", "shard", "concurrency"),
        *("backend", "workers", "address", "worker_cpus", "worker_gpus"),
    }
)
"""Options that change no result."""


def shaping(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that shape results."""
    return {name: value for name, value in config.items() if name not in SAME_SCORE}
