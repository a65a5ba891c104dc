"""Which episodes of a run are there already, and which are still missing."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeAlias

from agentgym_tok.trace import Episode, TraceStore

__all__ = ["Place", "ended", "finished"]

Place: TypeAlias = tuple[str, int]
"""Group and replica: what a run's seeds make of a task, in every process the same."""


def finished(store: TraceStore | None, run: str | Path, wanted: Collection[Place]) -> Iterator[tuple[Place, Episode]]:
    """Yield the wanted rollouts that have ended, each place once, and close those that a killed process left behind.

    They are looked for in the store first, which an earlier attempt to resume another run may have filled.

    Args:
        store: What the harness writes to.
        run: Folder of the run; may be the store's own.
        wanted: What is looked for.

    Raises:
        TraceError: There is no run.
    """
    left = set(wanted)
    if store is not None:
        # The store holds its shard alone, so whoever left these running is dead.
        for name in store.left_running():
            store.finish(name, "abandoned")
        yield from ended(store, left)
    with TraceStore(run, mode="r") as other:
        yield from ended(other, left)


def ended(store: TraceStore, left: set[Place]) -> Iterator[tuple[Place, Episode]]:
    """Yield the rollouts that have ended in a store, of those that are left, and take them out of these."""
    for head, status in store.heads():
        place = (head.group_id, head.replica)
        if head.parent is None and status in {"done", "failed"} and place in left:
            left.remove(place)
            yield place, store.episode(head.id)
