"""Leaving rollouts out of a run: what went is counted, and stands in the new run as a document."""

import contextlib
import fnmatch
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.errors import TraceCorrupt, TraceError, unknown_name
from agentgym_tok.trace.accounting import Accounting, account
from agentgym_tok.trace.encoding import to_json
from agentgym_tok.trace.exchange.copying import new_run
from agentgym_tok.trace.exchange.rollouts import Place, Rollouts, opened, rollouts
from agentgym_tok.trace.exchange.stream import stream
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.records import Status
from agentgym_tok.trace.shard import reading, shard_paths
from agentgym_tok.trace.store import TraceStore

__all__ = ["Selection", "prune", "pruned"]

_PRUNED: Final = "pruned"


class Selection(Config):
    """Say which rollouts to keep: those that meet all conditions, each with all its subagents."""

    status: tuple[Status, ...] = Field(default=(), description="keep rollouts of this status; may be repeated")
    success: bool | None = Field(default=None, description="keep what the world called a success, or a failure")
    group: tuple[str, ...] = Field(default=(), description="keep rollouts of this group; may be repeated")
    task: tuple[str, ...] = Field(default=(), description="keep tasks like this, * and ? being wild; may be repeated")
    episode: tuple[str, ...] = Field(default=(), description="keep the rollout of this episode; may be repeated")
    newest: int | None = Field(default=None, ge=1, description="keep the newest rollouts of those, so many")
    whole_groups: bool = Field(default=False, description="leave a group out as soon as one of its rollouts is")


def prune(run: str | Path, out: str | Path, selection: Selection) -> dict[str, Any]:
    """Copy the chosen rollouts of a run into a new one; every record is checked on the way.

    Attempts stay with their turns, and subagents with their roots. The new run has a document `pruned`.

    Args:
        run: Folder of the run.
        out: Folder of the new run; nothing may stand there.
        selection: What to keep.

    Returns:
        The document: `rule`, `made` (Unix time, s), and for `kept` and `left_out` the number of rollouts, episodes and
        turns; for what was left out also its `accounting` under `rl` and `sft`.

    Raises:
        TraceError: There is no trace, nothing would be kept, or the new run cannot be written.
        UnknownName: An episode that is asked for is not there.
        TraceCorrupt: A record is damaged or missing.
    """
    with opened([run]) as readers:
        found = rollouts(readers)
        kept = _chosen(found, selection)
        left = {name: members for name, members in found.items() if name not in kept}
        if not kept:
            rule = selection.model_dump_json(exclude_defaults=True)
            raise TraceError("no rollout is like that", where=run, got=rule, fix="trace show lists what there is")
        document = {
            "rule": selection.model_dump(mode="json", exclude_defaults=True),
            "made": time.time(),
            "kept": _counts(kept),
            "left_out": {**_counts(left), "accounting": _accounting(run, left)},
        }
        with new_run(out) as copy:
            for record in stream(readers, kept, {_PRUNED: to_json(document, where=_PRUNED)}):
                copy.put(record)
    return document


def pruned(run: str | Path) -> list[dict[str, Any]]:
    """Return what prunings left out of a run, a document each; what is damaged is left to `verify`.

    Raises:
        TraceError: A shard cannot be read.
    """
    documents: list[dict[str, Any]] = []
    for path in shard_paths(Path(run)):
        with contextlib.suppress(TraceCorrupt), Reader.opened(path) as reader:
            if reader is not None:
                stored = reader.documents().items()
                documents.extend(json.loads(body) for name, body in stored if name.partition(":")[0] == _PRUNED)
    return documents


def _chosen(found: Rollouts, selection: Selection) -> Rollouts:
    names = {member.name: root for root, members in found.items() for member in members}
    for name in selection.episode:
        if name not in names:
            raise unknown_name("episode", name, names, where="prune")
    asked = {names[name] for name in selection.episode}
    records = {root: _record(members[0]) for root, members in found.items()}
    kept = [root for root, row in records.items() if (not asked or root in asked) and _fits(row, selection)]
    if selection.newest is not None:
        kept = sorted(kept, key=lambda root: records[root]["created"])[-selection.newest :]
    chosen = set(kept)
    if selection.whole_groups:
        torn = {row["group_id"] for root, row in records.items() if root not in chosen}
        chosen = {root for root in chosen if records[root]["group_id"] not in torn}
    return {root: members for root, members in found.items() if root in chosen}


def _record(place: Place) -> Any:
    with reading(place.reader.path, f"episode {place.name}"):
        return place.reader.connection.execute("SELECT * FROM episodes WHERE id = ?", (place.number,)).fetchone()


def _fits(row: Any, selection: Selection) -> bool:
    return (
        (not selection.status or row["status"] in selection.status)
        and (selection.success is None or row["success"] == int(selection.success))
        and (not selection.group or row["group_id"] in selection.group)
        and (not selection.task or any(fnmatch.fnmatchcase(row["task"], pattern) for pattern in selection.task))
    )


def _counts(part: Rollouts) -> dict[str, int]:
    places = [place for members in part.values() for place in members]
    return {"rollouts": len(part), "episodes": len(places), "turns": sum(_record(place)["turns"] for place in places)}


def _accounting(run: str | Path, roots: Iterable[str]) -> list[dict[str, Any]]:
    rl, sft = Accounting("rl"), Accounting("sft")
    with TraceStore(run, mode="r") as store:
        for episode in map(store.episode, roots):
            rl, sft = rl + account(episode, "rl"), sft + account(episode, "sft")
    return [rl.to_dict(), sft.to_dict()]
