"""Shards of workers: what those of the dead hold, and episodes that a driver stores for workers elsewhere."""

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from agentgym_tok.errors import StoreLocked
from agentgym_tok.harness.resume import Place, ended
from agentgym_tok.trace import Episode, TraceStore
from agentgym_tok.trace.shard import shard_path, shard_paths

__all__ = ["WORKER", "bring_to_rest", "ended_in", "shard_of", "store_whole", "worker_shards"]

WORKER = "ray-"
"""What the name of a worker begins with."""

_PATIENCE_S = 30.0
"""How long a process that is being killed may hold its shard."""


def shard_of(store: TraceStore, worker: str) -> str:
    """Return the name of a worker's shard beside that of a store."""
    return f"{store._own_shard}.{worker}"


def worker_shards(store: TraceStore, but: Iterable[str] = ()) -> list[str]:
    """Return the names of all shards that workers wrote beside that of a store.

    Args:
        store: The driver's.
        but: Names of workers whose shards are left out.
    """
    living = {shard_of(store, worker) for worker in but}
    found = (path.stem for path in shard_paths(store.run))
    return [shard for shard in found if shard.startswith(shard_of(store, WORKER)) and shard not in living]


def bring_to_rest(run: Path, shards: Iterable[str]) -> None:
    """Wait until nobody writes shards any more, and abandon what they left running.

    Only then can what they hold be counted: a process that is thought dead may still end an episode.

    Args:
        run: Folder of the run.
        shards: Names; one that was never begun is passed over.

    Raises:
        StoreLocked: A process still writes.
        TraceError: A shard cannot be opened.
    """
    deadline = time.monotonic() + _PATIENCE_S
    for shard in shards:
        while shard_path(run, shard).exists():
            try:
                store = TraceStore(run, shard=shard)
            except StoreLocked:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                continue
            with store:
                for name in store.left_running():
                    store.finish(name, "abandoned")
            break


def ended_in(run: Path, shard: str, wanted: Collection[Place]) -> Mapping[Place, Episode]:
    """Return the wanted rollouts that ended in a shard."""
    if not shard_path(run, shard).exists():
        return {}
    with TraceStore(run, shard=shard, mode="r") as store:
        return dict(ended(store, set(wanted)))


def store_whole(store: TraceStore, episode: Episode) -> None:
    """Write an episode that was played elsewhere, with its subagents, in one commit.

    Raises:
        TraceError: The store cannot take it; nothing of it is stored then.
    """
    with store.together():
        _write(store, episode)


def _write(store: TraceStore, episode: Episode) -> None:
    store.begin(episode.head)
    for turn in episode.turns:
        store.append(turn)
    store.finish(episode.id, episode.status, episode.success, episode.failure)
    for child in episode.children:
        _write(store, child)
