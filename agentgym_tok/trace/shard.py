"""One SQLite file: opening it, refusing what it should not be, and turning its errors into ours."""

import contextlib
import json
import sqlite3
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pydantic

from agentgym_tok.errors import AgentGymTokError, FingerprintMismatch, TraceCorrupt, TraceError
from agentgym_tok.trace.chain import short_seal
from agentgym_tok.trace.records import RunMeta
from agentgym_tok.trace.schema import APPLICATION_ID, FORMAT, ddl

__all__ = [
    "EPISODES",
    "check_meta",
    "close_writer",
    "create",
    "is_empty",
    "open_shard",
    "read_meta",
    "reading",
    "shard_path",
    "shard_paths",
    "write_meta",
    "writing",
]

_RUN: Final = "run"
EPISODES: Final = "episodes"
"""The number of episodes that were begun, so that the loss of the last one is seen too."""

_RESTORE: Final = "restore the shard from a copy"
_PATIENCE = 10.0
"""Seconds to wait for a reader that holds a lock; nobody holds one for long."""

# A checkpoint syncs the file; one per 16 MiB of log is seldom enough to write fast and often enough to open fast.
_CHECKPOINT_PAGES = 4096

# Going to a log and back changes a few bytes in the first sector of the first page, which is old or new, never torn. A
# journal for that would stay beside a shard whose writer is killed then, and keep readers out until the next writer.
_NO_JOURNAL = "PRAGMA journal_mode = MEMORY"

# Primary result codes of SQLite that say "the content is wrong"; 1 is a table or column that is not there.
_DAMAGE: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "free disk space, then append the same turn again",
    sqlite3.SQLITE_READONLY: "make the run writable, or open it to read",
    sqlite3.SQLITE_CANTOPEN: "check the folder's permissions; after a killed writer it must be writable",
    sqlite3.SQLITE_BUSY: "close whatever holds the file, then append the same turn again",
}


def shard_path(run: Path, shard: str) -> Path:
    """Return the place of a shard."""
    return run / "shards" / f"{shard}.sqlite"


def shard_paths(run: Path) -> list[Path]:
    """Return all shards of a run in the order of their names.

    Raises:
        TraceError: The folder cannot be listed.
    """
    folder = run / "shards"
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".sqlite")
    except FileNotFoundError:
        return []
    except OSError as error:
        fix = "look at the path and its permissions"
        raise TraceError("the run cannot be listed", where=folder, got=error.strerror, fix=fix) from error


@contextlib.contextmanager
def writing(path: Path, what: str) -> Iterator[None]:
    """Turn what SQLite raises into our errors.

    Raises:
        TraceError: The disk, the file system or a cell stands in the way; what was committed before is intact.
        TraceCorrupt: The file is damaged.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        raise TraceCorrupt(f"{what}: the shard is damaged", where=path, got=str(error), fix=_RESTORE) from error
    except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError, TypeError) as error:
        fix = "numbers must fit 64 bits, names and reasons must be valid text"
        raise TraceError(f"{what}: a value fits no cell", where=path, got=str(error), fix=fix) from error
    except sqlite3.Error as error:
        raise _translated(error, path, what) from error


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a damaged record makes a reader raise into our errors.

    Raises:
        TraceError: The file cannot be read.
        TraceCorrupt: A record is damaged or missing.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path, what) from error
    except TraceCorrupt:
        raise
    except (AgentGymTokError, pydantic.ValidationError, ValueError, TypeError, KeyError, AttributeError) as error:
        got = f"{type(error).__name__}: {error}"
        raise TraceCorrupt(f"{what}: a record is damaged", where=path, got=got, fix="run trace verify") from error


def _translated(error: sqlite3.Error, path: Path, what: str) -> TraceError:
    # Python's own complaints, such as a text that is no UTF-8, carry no code: they are about the content.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in _DAMAGE:
        return TraceCorrupt(f"{what}: the shard is damaged", where=path, got=str(error), fix=_RESTORE)
    return TraceError(f"{what}: SQLite refuses", where=path, got=str(error), fix=_ADVICE.get(code, "look at the disk"))


def open_shard(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open a shard and check that it is one; an empty file passes.

    Args:
        path: The file.
        write: Create it where it is missing; else open it read-only.

    Raises:
        TraceError: It cannot be opened, or its format is newer than this library.
        TraceCorrupt: It is no shard, or tables are missing or changed.
    """
    mode = "rwc" if write else "ro"
    with contextlib.ExitStack() as on_failure, writing(path, "open"):
        uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        on_failure.callback(connection.close)
        connection.row_factory = sqlite3.Row
        _check_format(connection, path, write=write)
        if write:
            _tune(connection, path)
        on_failure.pop_all()
    return connection


def is_empty(connection: sqlite3.Connection) -> bool:
    """Say whether nothing was ever committed: its writer died before the first commit."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(tables) == 0


def _check_format(connection: sqlite3.Connection, path: Path, *, write: bool) -> None:
    if is_empty(connection):
        return
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if mark != APPLICATION_ID:
        raise TraceCorrupt("no shard of a trace", where=path, got=f"application_id {mark}", expected=APPLICATION_ID)
    found, known = divmod(version, 100), f"{FORMAT[0]}.{FORMAT[1]}"
    if found[0] != FORMAT[0] or (write and found > FORMAT):
        got = f"format {found[0]}.{found[1]}"
        fix = "install a library that knows this format"
        raise TraceError("the trace has another format", where=path, got=got, expected=f"format {known}", fix=fix)
    statements = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    for name, statement in ddl().items():
        # A newer minor version may have added columns to a table, and no more.
        if name not in statements or (found == FORMAT and statements[name] != statement):
            got = statements.get(name) or "nothing"
            raise TraceCorrupt("a table is torn", where=f"{path}: {name}", got=got, expected=statement, fix=_RESTORE)


def _tune(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":  # else a killed writer's log goes on, which somebody may be reading
        connection.execute(_NO_JOURNAL)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        fix = "put the run on a local disk"
        raise TraceError("the file system has no write-ahead log", where=path, got=mode, expected="wal", fix=fix)
    # Where a file cannot be opened to write SQLite opens it to read, which only a change brings to light.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("PRAGMA user_version = 0")
    connection.execute("ROLLBACK")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")


def close_writer(connection: sqlite3.Connection, path: Path) -> None:
    """Close a shard that was written, as one plain file, which a read-only disk and any SQLite can read.

    Somebody who reads it at this moment keeps the log alive; that is no failure.

    Raises:
        TraceError: The log could not be brought into the file; both together hold all that was written.
    """
    with contextlib.closing(connection), writing(path, "close"):
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            connection.execute(_NO_JOURNAL)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise


def create(connection: sqlite3.Connection, meta: RunMeta) -> None:
    """Write the tables and what the run was made with, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in ddl().values():
        connection.execute(statement)
    write_meta(connection, _RUN, meta.model_dump_json())
    write_meta(connection, EPISODES, "0")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {100 * FORMAT[0] + FORMAT[1]}")
    connection.execute("COMMIT")


def write_meta(connection: sqlite3.Connection, name: str, body: str) -> None:
    """Write a sealed document about the shard."""
    seal = short_seal(b"", (name, body))
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (name, body, seal))


def read_meta(connection: sqlite3.Connection, path: Path) -> RunMeta:
    """Return what the run was made with.

    Raises:
        TraceCorrupt: The document is missing or damaged.
    """
    with reading(path, "run"):
        row = connection.execute("SELECT body, digest FROM meta WHERE name = ?", (_RUN,)).fetchone()
        if row is None or short_seal(b"", (_RUN, row["body"])) != row["digest"]:
            got = "nothing" if row is None else "another digest"
            raise TraceCorrupt("the run's document is damaged", where=path, got=got, expected="its sealed text")
        document: Mapping[str, Any] = json.loads(row["body"])
        # A newer minor version may say more than this one knows.
        return RunMeta.model_validate({name: document[name] for name in RunMeta.model_fields if name in document})


def check_meta(stored: RunMeta, given: RunMeta, where: Path) -> None:
    """Refuse to mix tokenizers.

    Raises:
        FingerprintMismatch: The run was made with another chat format.
    """
    if (stored.fingerprint, stored.vocab_size) != (given.fingerprint, given.vocab_size):
        raise FingerprintMismatch(
            "the run holds ids of another chat format",
            where=where,
            got=f"{given.fingerprint[:16]} with {given.vocab_size} ids",
            expected=f"{stored.fingerprint[:16]} with {stored.vocab_size} ids ({stored.chat or 'unnamed'})",
            fix="write to another run, or use the format that began this one",
        )
