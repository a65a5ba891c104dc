"""A run as Parquet tables, and back (extra `parquet`)."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.trace.audit import audit
from agentgym_tok.trace.drafts import new_folder
from agentgym_tok.trace.exchange.arrow_schema import arrow_schema, pyarrow
from agentgym_tok.trace.exchange.cells import Record, record_from, shown
from agentgym_tok.trace.exchange.fresh import RUN, insert, new_shard, start_shard
from agentgym_tok.trace.exchange.parquet_file import ParquetFile
from agentgym_tok.trace.exchange.rollouts import opened
from agentgym_tok.trace.exchange.stream import stream
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.schema import TABLES
from agentgym_tok.trace.shard import EPISODES, reading, write_meta, writing

__all__ = ["export_parquet", "import_parquet"]

_BATCH: Final = 256


def export_parquet(run: str | Path, out: str | Path) -> dict[str, int]:
    """Write a run as one Parquet file for each table, all shards together.

    Args:
        run: Folder of the run.
        out: The folder of the files; nothing may stand there.

    Returns:
        Number of records by table.

    Raises:
        TraceError: There is no trace, or the folder cannot be written.
        TraceCorrupt: A record is damaged or missing.
        MissingExtra: pyarrow is not installed.
    """
    schemas = {table.name: arrow_schema(table) for table in TABLES}
    counts: Counter[str] = Counter(dict.fromkeys(schemas, 0))
    with opened([run]) as readers, new_folder(Path(out)) as draft, contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(ParquetFile(draft / f"{name}.parquet", schema))
            for name, schema in schemas.items()
        }
        for record in _final(stream(readers)):
            files[record.table].add(shown(record))
            counts[record.table] += 1
    return dict(counts)


def _final(records: Iterator[Record]) -> Iterator[Record]:
    """Leave out the records of episodes as they began: a table holds each episode once."""
    begun: set[int] = set()
    for record in records:
        if record.table == "episodes" and record.cells["id"] not in begun:
            begun.add(record.cells["id"])
        else:
            yield record


def import_parquet(folder: str | Path, out: str | Path) -> None:
    """Make a run of the Parquet files of its tables; every digest and the hash chain are checked.

    Args:
        folder: What `export_parquet` wrote; the order of the records does not matter.
        out: Folder of the new run; nothing may stand there.

    Raises:
        TraceError: The format is newer, or the run cannot be written.
        TraceCorrupt: A file is missing or damaged, or the records are not those that were exported.
        MissingExtra: pyarrow is not installed.
    """
    source = Path(folder)
    with new_shard(out) as (connection, path):
        documents = {record.cells["name"]: record for record in _records(source, "meta")}
        if not {RUN, EPISODES} <= set(documents):
            raise TraceCorrupt("the run's document is missing", where=source / "meta.parquet", got=list(documents))
        start_shard(connection, path, documents[RUN].cells["body"])
        for name, record in documents.items():
            if name not in {RUN, EPISODES}:
                insert(connection, record)
        write_meta(connection, EPISODES, documents[EPISODES].cells["body"])
        for table in TABLES:
            if table.name != "meta":
                with reading(source, table.name):
                    for record in _records(source, table.name):
                        insert(connection, record)
        with writing(path, "import"):
            connection.execute("COMMIT")
        breaches = list(audit(Reader(connection, path)))
        if breaches:
            got = f"{breaches[0].message} ({len(breaches)} breaches)"
            raise TraceCorrupt("the tables are not what was exported", where=source, got=got, fix="export them again")


def _records(folder: Path, table: str) -> Iterator[Record]:
    pa, path = pyarrow(), folder / f"{table}.parquet"
    try:
        with pa.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_BATCH):
                for values in batch.to_pylist():
                    yield record_from(table, values)
    except (pa.ArrowException, OSError) as error:
        raise TraceCorrupt("the file cannot be read", where=path, got=error, fix="export the run again") from error
