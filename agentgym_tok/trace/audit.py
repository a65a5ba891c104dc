"""The promise under all laws: a shard is what was written, record by record."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.trace.chain import node_digest, redaction_seal, seal, short_seal
from agentgym_tok.trace.encoding import end_seal
from agentgym_tok.trace.evidence import evidence_from, evidence_seal
from agentgym_tok.trace.laws import RECORD, Breach
from agentgym_tok.trace.reader import Reader, span_from
from agentgym_tok.trace.schema import HEAD, TURN
from agentgym_tok.trace.shard import EPISODES, reading

__all__ = ["audit", "check_turn", "image_seal", "node_seal", "root_seal", "token_seal"]

_NODES = """
    SELECT nodes.*, coalesce(before.digest, roots.digest) AS before FROM nodes
    LEFT JOIN nodes AS before ON before.id = nodes.parent LEFT JOIN roots ON roots.id = nodes.root ORDER BY nodes.id
"""
_TURNS = """
    SELECT turns.*, context.digest AS context_digest, answer.digest AS answer_digest, settings.body AS settings_body,
        texts.body AS texts_body, layers, chosen, experts, counts, support, answer.length AS length FROM turns
    LEFT JOIN nodes AS context ON context.id = turns.context LEFT JOIN nodes AS answer ON answer.id = turns.completion
    LEFT JOIN settings ON settings.id = turns.settings LEFT JOIN texts ON texts.turn = turns.id
    LEFT JOIN evidence ON evidence.turn = turns.id
    WHERE episode = ? ORDER BY seq
"""
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
        redacted = {(row["kind"], row["record"]): row for row in reader.connection.execute("SELECT * FROM redactions")}
        yield from _each(reader, "SELECT * FROM roots", "root", root_seal)
        yield from _each(reader, _NODES, "node", lambda row: node_seal(row, redacted.get(("nodes", row["id"]))))
        yield from _each(reader, "SELECT * FROM tokens", "token text", token_seal)
        yield from _each(reader, "SELECT * FROM images", "image", image_seal)
        images = frozenset(row["sha256"] for row in reader.connection.execute("SELECT sha256 FROM images"))
        for record in reader.connection.execute("SELECT * FROM episodes ORDER BY id").fetchall():
            yield from _chain(reader, record, redacted, images)
        (count,) = reader.connection.execute(_STRAYS).fetchone()
        if count:
            yield _breach(f"{reader.path.name}: {count} texts, evidence or redactions belong to no record")


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


def root_seal(row: Any) -> bytes:
    """Return the digest of a record of `roots`."""
    return short_seal(b"", (row["fingerprint"], row["vocab_size"], row["tools"]))


def node_seal(row: Any, redaction: Any | None) -> bytes:
    """Return the digest that a record of `nodes` must have.

    Args:
        row: The record, with the digest `before` it.
        redaction: Its record of `redactions`.

    Raises:
        TraceCorrupt: It is not what its redaction left, or holds no span.
    """
    if (row["root"] is None) == (row["parent"] is None):
        raise TraceCorrupt("a first span has a root, every other one a parent", got=f"{row['root']}, {row['parent']}")
    span = span_from(row)
    if redaction is None:
        return node_digest(row["before"], span)
    _check_redaction(redaction, row["digest"], node_digest(row["before"], span))
    return bytes(row["digest"])


def token_seal(row: Any) -> bytes:
    """Return the digest of a record of `tokens`."""
    return short_seal(b"", (row["id"], row["text"]))


def image_seal(row: Any) -> bytes:
    """Return the digest of a record of `images`.

    Raises:
        TraceCorrupt: Its body is another file.
    """
    found = hashlib.sha256(row["body"]).hexdigest()
    if found != row["sha256"]:
        raise TraceCorrupt("the file is another one", got=found, expected=row["sha256"])
    return short_seal(b"", (row["sha256"], row["type"]))


def _check_redaction(row: Any, digest: bytes, body: bytes | None) -> None:
    """Check what a redaction left behind, and that the redaction itself is what was written.

    Raises:
        TraceCorrupt: One of them is not.
    """
    if body != row["body"]:
        raise TraceCorrupt("what a redaction left is not what stands there")
    if redaction_seal(row["kind"], digest, row["rule"], row["made"], row["body"]) != row["digest"]:
        raise TraceCorrupt("a redaction is not what was written")


def _chain(
    reader: Reader, record: Any, redacted: Mapping[tuple[str, int], Any], images: AbstractSet[str]
) -> Iterator[Breach]:
    name = record["name"]
    tip = seal(b"", [record[column] for column in HEAD])
    count = 0
    for row in reader.connection.execute(_TURNS, (record["id"],)):
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


def _check_images(texts: Any, images: AbstractSet[str]) -> None:
    missing = {name for message in texts["messages"] for name in message.get("images", ())} - images
    if missing:
        raise TraceCorrupt("an image that it shows is not there", got=min(missing))


def check_turn(row: Any, tip: bytes, redacted: Mapping[tuple[str, int], Any], images: AbstractSet[str]) -> None:
    """Check a turn, its texts and its evidence against the hash chain.

    Args:
        row: The record of `turns`, with the cells of its `evidence`, `texts_body`, `settings_body`, the digests of its
            spans as `context_digest` and `answer_digest`, and the `length` of its answer.
        tip: The hash before it.
        redacted: Records of `redactions` by kind and record.
        images: Names of the images that are there.

    Raises:
        TraceCorrupt: Something is not what was written.
    """
    experts_T_L_K, support = evidence_from(row, row["length"])
    said = evidence_seal(experts_T_L_K, support)
    evidence, texts = (redacted.get((kind, row["id"])) for kind in ("evidence", "texts"))
    if evidence is not None:
        _check_redaction(evidence, row["evidence"], said)
    elif said != row["evidence"]:
        raise TraceCorrupt("its evidence is not what was written")
    if row["texts_body"] is None:
        raise TraceCorrupt("its texts are missing")
    if texts is not None:
        _check_redaction(texts, row["texts"], short_seal(b"", (row["texts_body"],)))
    elif short_seal(b"", (row["texts_body"],)) != row["texts"]:
        raise TraceCorrupt("its texts are not those that were written")
    if '"images"' in row["texts_body"]:
        _check_images(json.loads(row["texts_body"]), images)
    cells = [row[column] for column in TURN]
    if seal(tip, (row["context_digest"], row["answer_digest"], row["settings_body"], *cells)) != row["hash"]:
        raise TraceCorrupt("the hash chain breaks")
