"""Where two configurations differ."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["SAME_SCORE", "differences", "shaping"]

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


def differences(first: Any, second: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted name of each value that differs, and both values; what one side lacks is None there.

    Args:
        first: A JSON value.
        second: Another one.
        name: What they are called.
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in sorted(first.keys() | second.keys()):
            yield from differences(first.get(key), second.get(key), f"{name}.{key}" if name else key)
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{name}.{place}")
    elif first != second:
        yield name, first, second
