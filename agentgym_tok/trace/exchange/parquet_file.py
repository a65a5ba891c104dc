"""Writing a Parquet file record by record (extra `parquet`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from agentgym_tok.errors import TraceError
from agentgym_tok.trace.exchange.arrow_schema import pyarrow

__all__ = ["ParquetFile"]

_GROUP: Final = 16 << 20
"""Bytes of a row group, about; so much is held in memory, and no more."""


class ParquetFile:
    """Write records to a file, zstd, one row group at a time.

    Args:
        path: The file.
        schema: A `pyarrow.Schema`.
    """

    def __init__(self, path: Path, schema: Any) -> None:
        self._pa = pyarrow()
        self._path = path
        self._schema = schema
        self._records: list[Mapping[str, Any]] = []
        self._size = 0
        self._writer = self._pa.parquet.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._writer.close()

    def add(self, record: Mapping[str, Any]) -> None:
        """Write a record, by column.

        Raises:
            TraceError: A record since the last row group does not fit the schema.
        """
        self._records.append(record)
        self._size += sum(map(_size, record.values()))
        if self._size >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._records:
            try:
                self._writer.write_batch(self._pa.RecordBatch.from_pylist(self._records, self._schema))
            except self._pa.ArrowException as error:
                raise TraceError("Parquet refuses a record", where=self._path, got=error) from error
        self._records, self._size = [], 0


def _size(value: Any) -> int:
    """Return about how many bytes a value takes; lists of lists are smaller than what Python needs for them."""
    match value:
        case np.ndarray():
            return value.nbytes
        case str() | bytes():
            return len(value)
        case list():
            return sum(map(_size, value))
    return 8
