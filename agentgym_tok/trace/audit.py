"""The promise under all laws: a shard is what was written, record by record."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.trace.chain import seal, short_seal
from agentgym_tok.trace.encoding import end_seal, span_from
from agentgym_tok.trace.laws import RECORD, Breach, Key
from agentgym_tok.trace.proof import NODES, TURNS, check_turn, image_seal, prove_span, root_seal, token_seal
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.schema import HEAD
from agentgym_tok.trace.shard import EPISODES, reading

__all__ = ["audit", "find_answers"]

_STRAYS = """
    SELECT (SELECT count(*) FROM texts WHERE turn NOT IN (SELECT id FROM turns))
        + (SELECT count(*) FROM evidence WHERE turn NOT IN (SELECT id FROM turns WHERE evidence IS NOT NULL))
        + (SELECT count(*) FROM redactions WHERE kind NOT IN ('nodes', 'texts', 'evidence')
            OR kind = 'nodes' AND record NOT IN (SELECT id FROM nodes)
            OR kind != 'nodes' AND record NOT IN (SELECT id FROM turns))
"""


def audit(reader: Reader) -> Iterator[Breach]:
    """Recompute every digest and the hash chain of every episode.

    Args:
        reader: Of the shard, in a snapshot.

    Yields:
        What is not as it was written.

    Raises:
        TraceCorrupt: So much is damaged that records cannot be listed.
    """
    with reading(reader.path, "audit"):
        for (message,) in reader.connection.execute("PRAGMA integrity_check"):
            if message != "ok":
                yield _breach(f"{reader.path.name}: {message}")
        for table in ("roots", "nodes", "settings", "episodes", "turns", "images", "redactions"):
            count, last = reader.connection.execute(f"SELECT count(*), max(id) FROM {table}").fetchone()  # noqa: S608
            if count != (last or 0):
                yield _breach(f"{reader.path.name}: {count} records in {table}, the last is number {last}")
        yield from _meta(reader)
        redacted = reader.redactions()
        yield from _each(reader, "SELECT * FROM roots", "root", root_seal)
        yield from _each(reader, f"{NODES} ORDER BY nodes.id", "node", lambda row: _node(row, redacted))
        yield from _each(reader, "SELECT * FROM tokens", "token text", token_seal)
        yield from _each(reader, "SELECT * FROM images", "image", image_seal)
        images = frozenset(row["sha256"] for row in reader.connection.execute("SELECT sha256 FROM images"))
        for record in reader.connection.execute("SELECT * FROM episodes ORDER BY id").fetchall():
            yield from _chain(reader, record, redacted, images)
        (count,) = reader.connection.execute(_STRAYS).fetchone()
        if count:
            yield _breach(f"{reader.path.name}: {count} texts, evidence or redactions belong to no record")


def find_answers(reader: Reader, wanted: AbstractSet[Key]) -> Iterator[Key]:
    """Yield which of some answers stand in a shard.

    Raises:
        TraceCorrupt: A record is damaged or missing.
    """
    sent = {digest for digest, _ in wanted}
    with reading(reader.path, "answers"):
        for row in reader.connection.execute("SELECT sent, completion FROM turns"):
            digest = row["sent"].hex()
            if digest in sent:
                key = (digest, span_from(reader.node(row["completion"])).ids_T.tobytes())
                if key in wanted:
                    yield key


def _breach(message: str, episode: str = "", turn: int | None = None) -> Breach:
    return Breach(RECORD, episode, turn, message)


def _each(reader: Reader, query: str, what: str, digest: Callable[[Any], bytes]) -> Iterator[Breach]:
    for row in reader.connection.execute(query):
        try:
            with reading(reader.path, what):
                intact = digest(row) == row["digest"]
        except TraceCorrupt as error:
            yield _breach(f"{reader.path.name}: {what} {row['id']}: {error}")
        else:
            if not intact:
                yield _breach(f"{reader.path.name}: {what} {row['id']} has another digest")


def _meta(reader: Reader) -> Iterator[Breach]:
    (count,) = reader.connection.execute("SELECT count(*) FROM episodes").fetchone()
    for row in reader.connection.execute("SELECT * FROM meta"):
        if short_seal(b"", (row["name"], row["body"])) != row["digest"]:
            yield _breach(f"{reader.path.name}: meta {row['name']} has another digest")
        if row["name"] == EPISODES and row["body"] != str(count):
            yield _breach(f"{reader.path.name}: {count} episodes are there, {row['body']} were begun")


def _node(row: Any, redacted: Mapping[tuple[str, int], Any]) -> bytes:
    prove_span(row, redacted.get(("nodes", row["id"])))
    return bytes(row["digest"])


def _chain(
    reader: Reader, record: Any, redacted: Mapping[tuple[str, int], Any], images: AbstractSet[str]
) -> Iterator[Breach]:
    name = record["name"]
    tip = seal(b"", [record[column] for column in HEAD])
    count = 0
    for row in reader.connection.execute(TURNS, (record["id"],)):
        if row["seq"] != count:
            yield _breach(f"attempt number {count} is missing", name, row["turn"])
        count = row["seq"] + 1
        try:
            with reading(reader.path, "turn"):
                check_turn(row, tip, redacted, images)
        except TraceCorrupt as error:
            yield _breach(str(error), name, row["turn"])
        tip = row["hash"]
    if count != record["turns"]:
        yield _breach(f"{count} attempts are there, {record['turns']} were written", name)
    if record["status"] != "running":
        tip = end_seal(tip, record["status"], record["success"], record["failure"])
    if tip != record["tip"]:
        yield _breach("the hash chain does not end where it should", name)
