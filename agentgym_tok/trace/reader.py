"""Reading one shard: records as they were written, without any tokenizer."""

import contextlib
import hashlib
import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace.chain import seal, short_seal
from agentgym_tok.trace.encoding import end_seal, failure_from, head_from, root_from, turn_from
from agentgym_tok.trace.proof import NODES, TURNS, check_turn, prove_span
from agentgym_tok.trace.records import Episode, EpisodeHead, Redacted, Status, Turn
from agentgym_tok.trace.schema import HEAD
from agentgym_tok.trace.shard import is_empty, open_shard, read_meta, reading

__all__ = ["Reader"]


class Reader:
    """Read one shard.

    Args:
        connection: Of the shard; a writer's own connection will do.
        path: The file, for messages.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path
        self.meta = read_meta(connection, path)
        self._roots: dict[int, Root] = {}
        self._redacted = self.redactions()
        # Contexts that are alive are handed out again, so that turns of one walk share their past as they did at first.
        self._contexts: weakref.WeakValueDictionary[int, Context] = weakref.WeakValueDictionary()

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path) -> "Iterator[Reader | None]":
        """Open a shard to read; None where its writer died before the first commit.

        Raises:
            TraceError: It cannot be opened, or its format is newer than this library.
            TraceCorrupt: It is damaged.
        """
        with contextlib.closing(open_shard(path, write=False)) as connection:
            with reading(path, "open"):
                reader = None if is_empty(connection) else cls(connection, path)
            yield reader

    def names(self, *, roots: bool) -> list[str]:
        """Return the ids of the episodes in the order in which they were begun.

        Args:
            roots: Leave subagents out.
        """
        condition = "WHERE parent IS NULL" if roots else ""
        with reading(self.path, "episodes"):
            rows = self.connection.execute(f"SELECT name FROM episodes {condition} ORDER BY id")  # noqa: S608
            return [row["name"] for row in rows]

    def children(self, episode: str) -> list[str]:
        """Return the ids of an episode's subagents."""
        with reading(self.path, "children"):
            rows = self.connection.execute("SELECT name FROM episodes WHERE parent = ? ORDER BY id", (episode,))
            return [row["name"] for row in rows]

    def heads(self) -> list[tuple[EpisodeHead, Status]]:
        """Return every head with its status, without any turn."""
        with reading(self.path, "heads"):
            return [
                (head_from(row), row["status"]) for row in self.connection.execute("SELECT * FROM episodes ORDER BY id")
            ]

    def documents(self) -> dict[str, str]:
        """Return the documents about the shard by name, JSON each, the run's first.

        Raises:
            TraceCorrupt: One is damaged.
        """
        found: dict[str, str] = {}
        with reading(self.path, "documents"):
            for row in self.connection.execute("SELECT * FROM meta ORDER BY name != 'run', rowid"):
                if short_seal(b"", (row["name"], row["body"])) != row["digest"]:
                    raise TraceCorrupt("a document is damaged", where=self.path, got=row["name"])
                found[row["name"]] = row["body"]
        return found

    def redactions(self) -> dict[tuple[str, int], Any]:
        """Return the records of `redactions` by kind and record."""
        with reading(self.path, "redactions"):
            rows = self.connection.execute("SELECT * FROM redactions ORDER BY id")
            return {(row["kind"], row["record"]): row for row in rows}

    def image(self, sha256: str) -> tuple[str, bytes] | None:
        """Return the media type and the file of an image; None where it is not in this shard.

        Raises:
            TraceCorrupt: The file is not the one that was stored.
        """
        with reading(self.path, f"image {sha256}"):
            row = self.connection.execute("SELECT type, body FROM images WHERE sha256 = ?", (sha256,)).fetchone()
            if row is None:
                return None
            found = hashlib.sha256(row["body"]).hexdigest()
            if found != sha256:
                raise TraceCorrupt("an image is damaged", where=self.path, got=found, expected=sha256)
            return row["type"], row["body"]

    def tokens(self) -> dict[int, str]:
        """Return the stored texts of ids."""
        with reading(self.path, "tokens"):
            return {row["id"]: row["text"] for row in self.connection.execute("SELECT id, text FROM tokens")}

    def episode(self, name: str, *, prove: bool = True) -> Episode | None:
        """Return an episode without its children; None where it is not in this shard.

        Args:
            name: Its id.
            prove: Check the hash chain; for those who have just done so.

        Raises:
            TraceCorrupt: A record is damaged or missing.
        """
        with reading(self.path, f"episode {name}"), self.snapshot():
            record = self.connection.execute("SELECT * FROM episodes WHERE name = ?", (name,)).fetchone()
            if record is None:
                return None
            rows = self.connection.execute(TURNS, (record["id"],)).fetchall()
            if len(rows) != record["turns"]:
                raise TraceCorrupt(
                    "turns are missing", where=f"{self.path}: {name}", got=len(rows), expected=record["turns"]
                )
            if prove:
                self._prove(record, rows)
            success = record["success"]
            return Episode(
                head=head_from(record),
                turns=tuple(self._turn(name, row) for row in rows),
                status=record["status"],
                success=None if success is None else bool(success),
                failure=failure_from(record["failure"]),
            )

    def _prove(self, record: sqlite3.Row, rows: list[sqlite3.Row]) -> None:
        """Check that head, turns and end are what was written; nobody trains on a reward that flipped."""
        images = frozenset(row["sha256"] for row in self.connection.execute("SELECT sha256 FROM images"))
        tip = seal(b"", [record[column] for column in HEAD])
        for row in rows:
            check_turn(row, tip, self._redacted, images)
            tip = row["hash"]
        if record["status"] != "running":
            tip = end_seal(tip, record["status"], record["success"], record["failure"])
        if tip != record["tip"]:
            raise TraceCorrupt("the hash chain does not end where it should", where=f"{self.path}: {record['name']}")

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """See one state of the shard for a while, whatever its writer adds meanwhile."""
        if self.connection.in_transaction:
            yield
            return
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):  # on a damaged file even that can fail
                self.connection.execute("ROLLBACK")

    def _turn(self, episode: str, row: sqlite3.Row) -> Turn:
        if row["settings_body"] is None or row["texts_body"] is None:
            what = "settings" if row["settings_body"] is None else "texts"
            raise TraceCorrupt(f"a turn's {what} are missing", where=f"{self.path}: {episode}, turn {row['turn']}")
        answer = self.node(row["completion"])
        if answer["parent"] != row["context"]:
            got = f"a child of node {answer['parent']}"
            where = f"{self.path}: {episode}, turn {row['turn']}"
            raise TraceCorrupt("the answer does not follow its context", where=where, got=got, expected=row["context"])
        context = self._context(row["context"])
        return turn_from(row, episode, context, self._span(answer), self._gone(row["id"], row["completion"]))

    def _gone(self, turn: int, node: int) -> frozenset[Redacted]:
        """Say what was taken out of a turn."""
        if not self._redacted:
            return frozenset()
        gone: set[Redacted] = set()
        if ("texts", turn) in self._redacted:
            gone.add("texts")
        place: int | None = node
        while place is not None and "ids" not in gone:
            if ("nodes", place) in self._redacted:
                gone.add("ids")
            place = self.node(place)["parent"]
        return frozenset(gone)

    def _context(self, node: int) -> Context:
        missing: list[tuple[int, sqlite3.Row]] = []
        place: int | None = node
        context: Context | None = None
        while place is not None:
            context = self._contexts.get(place)
            if context is not None:
                break
            row = self.node(place)
            missing.append((place, row))
            place = row["parent"]
        for place, row in reversed(missing):
            root = self._root(row["root"]) if context is None else context.root
            context = Context(root, self._span(row), context)
            self._contexts[place] = context
        assert context is not None
        return context

    def node(self, node: int) -> sqlite3.Row:
        """Return the record of a span, which follows its parent's.

        Raises:
            TraceCorrupt: There is none.
        """
        row: sqlite3.Row | None = self.connection.execute(f"{NODES} WHERE nodes.id = ?", (node,)).fetchone()
        if row is None:
            raise TraceCorrupt("a span is missing", where=self.path, got=f"no node {node}")
        if row["parent"] is not None and not 0 < row["parent"] < node:
            raise TraceCorrupt("a span follows itself", where=self.path, got=f"node {node} after {row['parent']}")
        return row

    def _span(self, row: sqlite3.Row) -> Span:
        return prove_span(row, self._redacted.get(("nodes", row["id"])))

    def _root(self, root: int) -> Root:
        if root not in self._roots:
            row = self.connection.execute("SELECT * FROM roots WHERE id = ?", (root,)).fetchone()
            if row is None:
                raise TraceCorrupt("a root is missing", where=self.path, got=f"no root {root}")
            self._roots[root] = root_from(row)
        return self._roots[root]
