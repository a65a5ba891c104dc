"""The promise under all laws: a shard is what was written, record by record."""

from collections.abc import Callable, Iterator
from typing import Any

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.trace.chain import node_digest, seal, short_seal
from agentgym_tok.trace.encoding import end_seal
from agentgym_tok.trace.laws import RECORD, Breach
from agentgym_tok.trace.reader import Reader, span_from
from agentgym_tok.trace.schema import HEAD, TURN
from agentgym_tok.trace.shard import EPISODES, reading

__all__ = ["audit"]

_NODES = """
    SELECT nodes.*, coalesce(before.digest, roots.digest) AS before FROM nodes
    LEFT JOIN nodes AS before ON before.id = nodes.parent LEFT JOIN roots ON roots.id = nodes.root ORDER BY nodes.id
"""
_TURNS = """
    SELECT turns.*, context.digest AS context_digest, answer.digest AS answer_digest, settings.body AS settings_body,
        texts.body AS texts_body FROM turns
    LEFT JOIN nodes AS context ON context.id = turns.context LEFT JOIN nodes AS answer ON answer.id = turns.completion
    LEFT JOIN settings ON settings.id = turns.settings LEFT JOIN texts ON texts.turn = turns.id
    WHERE episode = ? ORDER BY seq
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
        for table in ("roots", "nodes", "settings", "episodes", "turns"):
            count, last = reader.connection.execute(f"SELECT count(*), max(id) FROM {table}").fetchone()  # noqa: S608
            if count != (last or 0):
                yield _breach(f"{reader.path.name}: {count} records in {table}, the last is number {last}")
        yield from _meta(reader)
        yield from _each(reader, "SELECT * FROM roots", "root", _root)
        yield from _each(reader, _NODES, "node", _node)
        yield from _each(reader, "SELECT * FROM tokens", "token text", _token)
        for record in reader.connection.execute("SELECT * FROM episodes ORDER BY id").fetchall():
            yield from _chain(reader, record)


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


def _root(row: Any) -> bytes:
    return short_seal(b"", (row["fingerprint"], row["vocab_size"], row["tools"]))


def _node(row: Any) -> bytes:
    if (row["root"] is None) == (row["parent"] is None):
        raise TraceCorrupt("a first span has a root, every other one a parent", got=f"{row['root']}, {row['parent']}")
    return node_digest(row["before"], span_from(row))


def _token(row: Any) -> bytes:
    return short_seal(b"", (row["id"], row["text"]))


def _chain(reader: Reader, record: Any) -> Iterator[Breach]:
    name = record["name"]
    tip = seal(b"", [record[column] for column in HEAD])
    count = 0
    for row in reader.connection.execute(_TURNS, (record["id"],)):
        if row["seq"] != count:
            yield _breach(f"attempt number {count} is missing", name, row["turn"])
        count = row["seq"] + 1
        if row["texts_body"] is None or short_seal(b"", (row["texts_body"],)) != row["texts"]:
            yield _breach("its texts are not those that were written", name, row["turn"])
        references = (row["context_digest"], row["answer_digest"], row["settings_body"])
        if seal(tip, (*references, *(row[column] for column in TURN))) != row["hash"]:
            yield _breach("the hash chain breaks", name, row["turn"])
        tip = row["hash"]
    if count != record["turns"]:
        yield _breach(f"{count} attempts are there, {record['turns']} were written", name)
    if record["status"] != "running":
        tip = end_seal(tip, record["status"], record["success"], record["failure"])
    if tip != record["tip"]:
        yield _breach("the hash chain does not end where it should", name)
