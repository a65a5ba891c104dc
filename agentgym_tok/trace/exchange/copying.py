"""New runs made of records: each record is checked against what it claims to be, and nothing is sealed again."""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.trace.chain import seal, short_seal
from agentgym_tok.trace.encoding import end_seal
from agentgym_tok.trace.exchange.cells import Record
from agentgym_tok.trace.exchange.fresh import RUN, insert, new_shard, start_shard
from agentgym_tok.trace.proof import check_turn, image_seal, prove_span, root_seal, token_seal
from agentgym_tok.trace.schema import BY_NAME, HEAD
from agentgym_tok.trace.shard import EPISODES, reading, write_meta, writing

__all__ = ["Copy", "new_run"]

_SEALS: Final[Mapping[str, Callable[[Any], bytes]]] = {"roots": root_seal, "tokens": token_seal, "images": image_seal}
_NOTHING_SAID: Final[Mapping[str, Any]] = dict.fromkeys(column.name for column in BY_NAME["evidence"].columns)


@contextlib.contextmanager
def new_run(folder: str | Path) -> Iterator["Copy"]:
    """Make a new run of the stream of records that is put into it; see `new_shard`."""
    with new_shard(folder) as (connection, path):
        copy = Copy(connection, path)
        yield copy
        copy.close()


class Copy:
    """Write a stream of records to a new shard, in the order that `stream` describes.

    What was put in up to the last whole turn, head or end of an episode stays, also where a later record is refused.

    Args:
        connection: Of an empty shard.
        path: The file, for messages.

    Attributes:
        complete: The record that closes the stream was put in.
        counts: Records by table.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.complete = False
        self.counts: Counter[str] = Counter()
        self._connection = connection
        self._path = path
        self._redacted: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._said: dict[str, Mapping[str, Any]] = {}
        self._images: set[str] = set()
        self._episode: dict[str, Any] | None = None

    def put(self, record: Record) -> None:
        """Check a record and write it.

        Raises:
            TraceCorrupt: It is not what it claims to be, or not the next one.
            TraceError: It is of a newer format, or the disk refuses.
        """
        if not self.counts["meta"]:
            self._start(record)
            return
        try:
            with reading(self._path, record.table):
                self._put(record)
        except TraceCorrupt as error:
            if error.where is None:
                error.where = self._where(record)
            raise

    def close(self) -> None:
        """End the transaction at the last whole record; an episode without an end is running."""
        if not self.counts["meta"]:
            raise TraceCorrupt("nothing was put in", where=self._path)
        with writing(self._path, "close"):
            self._connection.execute("ROLLBACK TO whole")
            if self._episode is not None:
                self._stand(self._episode)
            write_meta(self._connection, EPISODES, str(self.counts["episodes"]))
            self._connection.execute("COMMIT")

    def _where(self, record: Record) -> str:
        cells = record.cells
        episode = "" if self._episode is None else f" in episode {self._episode['name']}"
        return f"{record.table} {next(cells[name] for name in ('id', 'turn', 'name') if name in cells)}{episode}"

    def _put(self, record: Record) -> None:
        table, cells = record.table, record.cells
        if self.complete:
            raise TraceCorrupt("a record follows the number of episodes", got=table)
        match table:
            case "meta":
                self._document(record)
            case "episodes":
                self._begin_or_end(cells)
            case "turns":
                self._turn(record)
            case "texts" | "evidence":
                self._expect(cells["turn"], self.counts["turns"] + 1)
                self._said[table] = cells
                self._add(record)
            case "redactions":
                counted = "nodes" if cells["kind"] == "nodes" else "turns"
                self._expect(cells["record"], self.counts[counted] + 1)
                self._redacted[cells["kind"], cells["record"]] = cells
                self._add(record)
            case _:
                self._plain(record)

    def _add(self, record: Record) -> None:
        if "id" in record.cells and record.table != "tokens":
            self._expect(record.cells["id"], self.counts[record.table] + 1)
        insert(self._connection, record)
        self.counts[record.table] += 1

    def _expect(self, number: int, expected: int) -> None:
        if number != expected:
            raise TraceCorrupt("records are not counted one by one", got=number, expected=expected)

    def _settle(self) -> None:
        """Make sure that nothing waits for a record that never came."""
        if self._redacted or self._said:
            raise TraceCorrupt("texts, evidence or redactions belong to no record")

    def _whole(self) -> None:
        """Keep what was put in so far, whatever follows."""
        self._connection.execute("RELEASE whole")
        self._connection.execute("SAVEPOINT whole")

    def _start(self, record: Record) -> None:
        if record.table != "meta" or record.cells["name"] != RUN:
            raise TraceCorrupt("the run's document comes first", got=record.table)
        _check_document(record)
        start_shard(self._connection, self._path, record.cells["body"])
        self._connection.execute("SAVEPOINT whole")
        self.counts["meta"] += 1

    def _document(self, record: Record) -> None:
        self._settle()
        _check_document(record)
        if record.cells["name"] == EPISODES:
            begun, there = record.cells["body"], str(self.counts["episodes"])
            if begun != there or self._episode is not None:
                got = there if self._episode is None else f"{there}, the last without its end"
                raise TraceCorrupt("episodes are missing", got=got, expected=begun)
            self.complete = True
        else:
            self._add(record)
        self._whole()

    def _plain(self, record: Record) -> None:
        table, cells = record.table, record.cells
        if table == "nodes":
            first = cells["parent"] is None
            before = self._find("roots", cells["root"]) if first else self._find("nodes", cells["parent"])
            row = {**cells, "before": before and before["digest"]}
            prove_span(row, self._redacted.pop(("nodes", cells["id"]), None))
        elif table != "settings" and _SEALS[table](cells) != cells["digest"]:
            raise TraceCorrupt("it has another digest", got=f"record {cells['id']}")
        self._add(record)
        if table == "images":
            self._images.add(cells["sha256"])

    def _find(self, table: str, number: int | None) -> Any:
        return self._connection.execute(f"SELECT * FROM {table} WHERE id = ?", (number,)).fetchone()  # noqa: S608

    # ---- episodes

    def _begin_or_end(self, cells: Mapping[str, Any]) -> None:
        self._settle()
        head = [cells[column] for column in HEAD]
        end = (cells["success"], cells["failure"])
        if self._episode is None:
            if (cells["status"], cells["turns"], *end) != ("running", 0, None, None) or seal(b"", head) != cells["tip"]:
                raise TraceCorrupt("no beginning of an episode", got=cells["name"])
            self._add(Record("episodes", cells))
            self._episode = dict(cells)
        else:
            tip, status = self._episode["tip"], cells["status"]
            if status != "running":
                tip = end_seal(tip, status, *end)
            same = (self._episode["id"], self._episode["turns"], [self._episode[column] for column in HEAD])
            if (
                (cells["id"], cells["turns"], head) != same
                or tip != cells["tip"]
                or (status == "running" and end != (None, None))
            ):
                raise TraceCorrupt("no end of the episode", got=cells["name"], expected=self._episode["name"])
            self._stand(cells)
            self._episode = None
        self._whole()

    def _stand(self, cells: Mapping[str, Any]) -> None:
        statement = "UPDATE episodes SET status = ?, success = ?, failure = ?, turns = ?, tip = ? WHERE id = ?"
        names = ("status", "success", "failure", "turns", "tip", "id")
        self._connection.execute(statement, [cells[name] for name in names])

    def _turn(self, record: Record) -> None:
        cells, episode = record.cells, self._episode
        if episode is None or (cells["episode"], cells["seq"]) != (episode["id"], episode["turns"]):
            got = f"attempt {cells['seq']} of episode {cells['episode']}"
            raise TraceCorrupt("it belongs to another episode, or turns are missing", got=got)
        context, answer = self._find("nodes", cells["context"]), self._find("nodes", cells["completion"])
        settings, texts = self._find("settings", cells["settings"]), self._said.pop("texts", None)
        if None in (context, answer, settings) or texts is None or answer["parent"] != context["id"]:
            raise TraceCorrupt("what it refers to is not there", got=f"attempt {cells['seq']} of {episode['name']}")
        if ("evidence" in self._said) != (cells["evidence"] is not None):
            raise TraceCorrupt("its evidence is missing, or that of another", got=f"attempt {cells['seq']}")
        row = {
            **self._said.pop("evidence", _NOTHING_SAID),
            **cells,
            "context_digest": context["digest"],
            "answer_digest": answer["digest"],
            "length": answer["length"],
            "settings_body": settings["body"],
            "texts_body": texts["body"],
        }
        redacted = {key: self._redacted.pop(key, None) for key in (("texts", cells["id"]), ("evidence", cells["id"]))}
        check_turn(row, episode["tip"], redacted, self._images)
        self._settle()
        self._add(record)
        self._whole()
        episode.update(turns=episode["turns"] + 1, tip=cells["hash"])


def _check_document(record: Record) -> None:
    name, body = record.cells["name"], record.cells["body"]
    if short_seal(b"", (name, body)) != record.cells["digest"]:
        raise TraceCorrupt("a document has another digest", got=name)
