"""The rollouts of one or more runs, wherever their episodes stand."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.schema import FORMAT
from agentgym_tok.trace.shard import check_meta, reading, shard_paths

__all__ = ["Place", "Rollouts", "opened", "rollouts"]

_REDACTED: Final = """
    SELECT kind, seq, redactions.body FROM redactions JOIN turns ON turns.id = record
    WHERE kind != 'nodes' AND episode = ? ORDER BY kind, seq
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Say where an episode stands.

    Args:
        reader: Its shard.
        number: Of its record there.
        name: Its id.
        parent: Id of the episode that opened it.
    """

    reader: Reader
    number: int
    name: str
    parent: str | None


Rollouts: TypeAlias = Mapping[str, Sequence[Place]]
"""Rollouts by the id of their root: the root and all subagents, parents first."""


@contextlib.contextmanager
def opened(runs: Iterable[str | Path]) -> Iterator[list[Reader]]:
    """Open all shards of runs, and see one state of each.

    Raises:
        TraceError: There is no trace, or its format is newer than this library.
        FingerprintMismatch: They were made with different chat formats.
        TraceCorrupt: A shard is damaged.
    """
    with contextlib.ExitStack() as stack:
        readers: list[Reader] = []
        for run in map(Path, runs):
            before = len(readers)
            for path in shard_paths(run):
                reader = stack.enter_context(Reader.opened(path))
                if reader is not None:
                    _check_version(reader)
                    check_meta(readers[0].meta if readers else reader.meta, reader.meta, path)
                    stack.enter_context(reader.snapshot())
                    readers.append(reader)
            if len(readers) == before:
                raise TraceError("there is no trace", where=run, expected="shards/*.sqlite", fix="look at the path")
        yield readers


def _check_version(reader: Reader) -> None:
    (version,) = reader.connection.execute("PRAGMA user_version").fetchone()
    if divmod(version, 100) > FORMAT:
        # Its columns that this library does not know would be lost in a copy.
        got, expected = f"format {version // 100}.{version % 100}", f"at most {FORMAT[0]}.{FORMAT[1]}"
        fix = "install a library that knows this format"
        raise TraceError(
            "a newer format can be read, not copied", where=reader.path, got=got, expected=expected, fix=fix
        )


def rollouts(readers: Sequence[Reader]) -> dict[str, list[Place]]:
    """List the rollouts of shards; an episode that stands in several of them, equal, is listed once.

    Raises:
        TraceCorrupt: Two different episodes have one id, or an episode is its own subagent.
    """
    places: dict[str, Place] = {}
    for reader in readers:
        with reading(reader.path, "episodes"):
            for row in reader.connection.execute("SELECT id, name, parent FROM episodes ORDER BY id"):
                place = Place(reader, row["id"], row["name"], row["parent"])
                if place.name not in places:
                    places[place.name] = place
                elif _identity(places[place.name]) != _identity(place):
                    where = f"{places[place.name].reader.path} and {reader.path}"
                    fix = "leave one of them out (trace prune), or take the newer copy alone"
                    raise TraceCorrupt("two episodes have one id", where=where, got=place.name, fix=fix)
    children: dict[str, list[Place]] = {}
    for place in places.values():
        if place.parent in places:
            children.setdefault(place.parent or "", []).append(place)
    found: dict[str, list[Place]] = {}
    for root in (place for place in places.values() if place.parent not in places):
        members, pending = [], [root]
        while pending:
            member = pending.pop()
            members.append(member)
            pending.extend(reversed(children.get(member.name, ())))
        found[root.name] = members
    lost = set(places) - {member.name for members in found.values() for member in members}
    if lost:
        raise TraceCorrupt("an episode is its own subagent", got=min(lost), fix="run trace verify")
    return found


def _identity(place: Place) -> tuple[Any, ...]:
    """Return what two copies of one episode have in common: the chain, and what was taken out of it."""
    connection = place.reader.connection
    with reading(place.reader.path, f"episode {place.name}"):
        (tip,) = connection.execute("SELECT tip FROM episodes WHERE id = ?", (place.number,)).fetchone()
        return (tip, *map(tuple, connection.execute(_REDACTED, (place.number,))))
