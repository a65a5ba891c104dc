"""A run as one stream of records, each after all that it needs: what copies and exchange formats are made of."""

import json
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.trace.chain import seal, short_seal
from agentgym_tok.trace.exchange.cells import Record
from agentgym_tok.trace.exchange.rollouts import Place, Rollouts, rollouts
from agentgym_tok.trace.proof import TURNS
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.schema import BY_NAME, HEAD
from agentgym_tok.trace.shard import EPISODES, reading

__all__ = ["stream"]


def stream(
    readers: Sequence[Reader], chosen: Rollouts | None = None, documents: Mapping[str, str] | None = None
) -> Iterator[Record]:
    """Yield the records of shards as those of one shard: numbered anew, each once, and after all that it needs.

    First come the documents and the texts of tokens. Then, for each episode, its record as it was begun; its turns,
    each after the images, settings, roots, spans, texts and evidence that are new with it, and each of these after its
    redaction; and its record as it stands. Images that nothing shows follow, and the number of episodes comes last.

    Args:
        readers: Of shards of one chat format.
        chosen: What to copy; by default everything.
        documents: Further documents by name.

    Raises:
        TraceCorrupt: A record is damaged or missing, or one shard holds what was taken out of another.
    """
    return _Stream(readers).records(chosen, documents or {})


class _Stream:
    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = readers
        self._last: Counter[str] = Counter()
        self._numbers: defaultdict[str, dict[bytes | str, int]] = defaultdict(dict)
        self._redactions = {reader: reader.redactions() for reader in readers}
        if len(readers) > 1:
            self._check_redactions()

    def records(self, chosen: Rollouts | None, documents: Mapping[str, str]) -> Iterator[Record]:
        found = rollouts(self._readers) if chosen is None else chosen
        yield from self._documents(documents)
        yield from self._tokens()
        for members in found.values():
            for place in members:
                with reading(place.reader.path, f"episode {place.name}"):
                    yield from self._episode(place)
        if chosen is None:
            for reader in self._readers:
                with reading(reader.path, "images"):
                    for row in reader.connection.execute("SELECT sha256 FROM images ORDER BY id"):
                        yield from self._image(reader, row["sha256"])
        yield _document(EPISODES, str(self._last["episodes"]))

    def _new(self, table: str, row: Any, *, length: int = 0, **changes: Any) -> Record:
        self._last[table] += 1
        return _record(table, row, length, **{"id": self._last[table], **changes})

    # ---- what stands for the whole run

    def _documents(self, further: Mapping[str, str]) -> Iterator[Record]:
        """Yield all documents; another one of the same name, of another shard, gets a number behind it."""
        known: dict[str, str] = {}
        for documents in (*(reader.documents() for reader in self._readers), further):
            for given, body in documents.items():
                base = given.partition(":")[0]
                alike = [name for name in known if name.partition(":")[0] == base]
                if base == EPISODES or body in (known[name] for name in alike):
                    continue
                name = f"{base}:{len(alike) + 1}" if alike else base
                known[name] = body
                yield _document(name, body)

    def _tokens(self) -> Iterator[Record]:
        rows: dict[int, Any] = {}
        for reader in self._readers:
            with reading(reader.path, "tokens"):
                for row in reader.connection.execute("SELECT * FROM tokens"):
                    rows.setdefault(row["id"], row)
        for index in sorted(rows):
            yield _record("tokens", rows[index])

    # ---- episodes

    def _episode(self, place: Place) -> Iterator[Record]:
        reader = place.reader
        row = reader.connection.execute("SELECT * FROM episodes WHERE id = ?", (place.number,)).fetchone()
        head = seal(b"", [row[column] for column in HEAD])
        begun = self._new("episodes", row, status="running", success=None, failure=None, turns=0, tip=head)
        yield begun
        for turn in reader.connection.execute(TURNS, (place.number,)):
            yield from self._turn(reader, turn, begun.cells["id"])
        yield _record("episodes", row, id=begun.cells["id"])

    def _turn(self, reader: Reader, row: Any, episode: int) -> Iterator[Record]:
        for name in ("context_digest", "answer_digest", "settings_body", "texts_body"):
            if row[name] is None:
                got = f"attempt {row['seq']} without {name.partition('_')[0]}"
                raise TraceCorrupt("a record is missing", where=reader.path, got=got, fix="run trace verify")
        for name in _images(row["texts_body"]):
            yield from self._image(reader, name)
        settings = yield from self._once("settings", row["settings_body"], {"body": row["settings_body"]})
        completion = yield from self._spans(reader, row["completion"])
        number = self._last["turns"] + 1
        yield from self._redaction(reader, "texts", row["id"], number)
        yield Record("texts", {"turn": number, "body": row["texts_body"]})
        if row["evidence"] is not None:
            yield from self._redaction(reader, "evidence", row["id"], number)
            yield _record("evidence", row, row["length"], turn=number)
        context = self._numbers["nodes"].get(row["context_digest"], 0)  # 0: the answer does not follow its context
        yield self._new("turns", row, episode=episode, context=context, completion=completion, settings=settings)

    def _once(self, table: str, key: bytes | str, row: Any) -> Generator[Record, None, int]:
        """Yield a record if it is new; return its number."""
        numbers = self._numbers[table]
        if key not in numbers:
            numbers[key] = self._last[table] + 1
            yield self._new(table, row)
        return numbers[key]

    def _spans(self, reader: Reader, node: int) -> Generator[Record, None, int]:
        """Yield the spans of a chain that are new, and the root under them; return the number of the last span."""
        numbers, missing = self._numbers["nodes"], []
        place: int | None = node
        parent: int | None = None
        while place is not None and parent is None:
            row = reader.node(place)
            parent = numbers.get(row["digest"])
            if parent is None:
                missing.append(row)
                place = row["parent"]
        for row in reversed(missing):
            root = (yield from self._root(reader, row["root"])) if parent is None else None
            yield from self._redaction(reader, "nodes", row["id"], self._last["nodes"] + 1)
            span = self._new("nodes", row, length=row["length"], root=root, parent=parent)
            parent = numbers[row["digest"]] = span.cells["id"]
            yield span
        assert parent is not None
        return parent

    def _root(self, reader: Reader, number: int) -> Generator[Record, None, int]:
        row = reader.connection.execute("SELECT * FROM roots WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise TraceCorrupt("a root is missing", where=reader.path, got=f"no root {number}")
        return (yield from self._once("roots", row["digest"], row))

    def _image(self, reader: Reader, name: str) -> Iterator[Record]:
        for other in (reader, *self._readers):
            row = other.connection.execute("SELECT * FROM images WHERE sha256 = ?", (name,)).fetchone()
            if row is not None:
                yield from self._once("images", name, row)
                return

    # ---- redactions

    def _redaction(self, reader: Reader, kind: str, record: int, number: int) -> Iterator[Record]:
        row = self._redactions[reader].get((kind, record))
        if row is not None:
            yield self._new("redactions", row, record=number)

    def _check_redactions(self) -> None:
        """Refuse to bring back what was taken out: a span that is blank in one shard and stands in another.

        Raises:
            TraceCorrupt: There is one.
        """
        for reader, own in self._redactions.items():
            for row in (row for (kind, _), row in own.items() if kind == "nodes"):
                digest = reader.node(row["record"])["digest"]
                for other, theirs in self._redactions.items():
                    found = other.connection.execute("SELECT id FROM nodes WHERE digest = ?", (digest,)).fetchone()
                    twin = None if found is None else theirs.get(("nodes", found["id"]))
                    if found is not None and (twin is None or twin["body"] != row["body"]):
                        where = f"{reader.path} and {other.path}"
                        fix = "redact both by the same rule first"
                        raise TraceCorrupt("a span was taken out of one and not of the other", where=where, fix=fix)


def _record(table: str, row: Any, length: int = 0, **changes: Any) -> Record:
    cells = {
        column.name: changes[column.name] if column.name in changes else row[column.name]
        for column in BY_NAME[table].columns
    }
    return Record(table, cells, length)


def _document(name: str, body: str) -> Record:
    return Record("meta", {"name": name, "body": body, "digest": short_seal(b"", (name, body))})


def _images(texts: str) -> list[str]:
    """Return the names of the images that a turn's messages show."""
    if '"images"' not in texts:
        return []
    return [name for message in json.loads(texts)["messages"] for name in message.get("images", ())]
