"""Which episodes of a run are there already, and which are still missing."""

from collections.abc import Mapping
from pathlib import Path

from agentgym_tok.trace import Episode, TraceStore

__all__ = ["Place", "finished"]

Place = tuple[str, int]
"""Group and replica: what a run's seeds make of a task, in every process the same."""


def finished(store: TraceStore | None, run: str | Path) -> Mapping[Place, Episode]:
    """Return the rollouts that have ended in a run, and close those that a killed process left in the store.

    Args:
        store: What the harness writes to.
        run: Folder of the run; may be the store's own.

    Raises:
        TraceError: There is no run.
    """
    if store is not None and store.run.resolve() == Path(run).resolve():
        # The store holds its shard alone, so whoever left these running is dead.
        for name in store.left_running():
            store.finish(name, "abandoned")
        return _ended(store)
    with TraceStore(run, mode="r") as other:
        return _ended(other)


def _ended(store: TraceStore) -> Mapping[Place, Episode]:
    found = {}
    for head, status in store.heads():
        if head.parent is None and status in {"done", "failed"}:
            found[head.group_id, head.replica] = store.episode(head.id)
    return found
