"""The shard of a new run, which appears whole or not at all."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.trace.drafts import new_folder
from agentgym_tok.trace.exchange.cells import Record
from agentgym_tok.trace.records import RunMeta
from agentgym_tok.trace.schema import FORMAT, TABLES
from agentgym_tok.trace.shard import create, reading, shard_path, write_meta, writing

__all__ = ["RUN", "insert", "new_shard", "start_shard"]

RUN: Final = "run"
"""Name of the document that says what a run was made with."""

_SHARD: Final = "main"


@contextlib.contextmanager
def new_shard(folder: str | Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """Give the empty shard of a new run, and the path that it will have; it appears when all went well, or not at all.

    Args:
        folder: Of the run; nothing may stand there.

    Raises:
        TraceError: Something stands there, or it cannot be written.
    """
    with new_folder(Path(folder)) as draft:
        draft_path, path = (shard_path(place, _SHARD) for place in (draft, Path(folder)))
        draft_path.parent.mkdir()
        with writing(path, "create"):
            connection = sqlite3.connect(draft_path, isolation_level=None)
        with contextlib.closing(connection):
            connection.row_factory = sqlite3.Row
            with writing(path, "create"):
                # Nobody reads the draft of a process that died, so that it need not survive a crash.
                connection.execute("PRAGMA journal_mode = MEMORY")
                connection.execute("PRAGMA synchronous = OFF")
            yield connection, path


def start_shard(connection: sqlite3.Connection, path: Path, body: str) -> None:
    """Write the tables and the run's document, word for word, and begin a transaction.

    Args:
        connection: Of an empty shard.
        path: The file, for messages.
        body: The document.

    Raises:
        TraceError: The document is of another format.
        TraceCorrupt: It is damaged.
    """
    with reading(path, RUN):
        document = json.loads(body)
        meta = RunMeta.model_validate({name: document[name] for name in RunMeta.model_fields if name in document})
        major, minor = map(int, meta.format_version.split("."))
    if major != FORMAT[0] or minor > FORMAT[1]:
        got, expected = f"format {meta.format_version}", f"at most {FORMAT[0]}.{FORMAT[1]}"
        fix = "install a library that knows this format"
        raise TraceError("the trace has another format", where=RUN, got=got, expected=expected, fix=fix)
    with writing(path, "create"):
        create(connection, meta)
        connection.execute("BEGIN")
        write_meta(connection, RUN, body)


def insert(connection: sqlite3.Connection, record: Record) -> None:
    """Write a record as it is.

    Raises:
        TraceCorrupt: It is there already.
    """
    try:
        connection.execute(_INSERT[record.table], tuple(record.cells.values()))
    except sqlite3.IntegrityError as error:
        raise TraceCorrupt("a record stands there twice", where=record.table, got=str(error)) from error


_INSERT: Final = {
    table.name: f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})"  # noqa: S608  # own names
    for table in TABLES
}
