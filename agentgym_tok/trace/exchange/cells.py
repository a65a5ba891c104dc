"""Records as formats with lists show them, and back to the cells of a shard."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace.chain import Value
from agentgym_tok.trace.codec import pack_ids, pack_logprobs, unpack_ids, unpack_logprobs
from agentgym_tok.trace.schema import BY_NAME, Column

__all__ = ["Record", "record_from", "shown"]


@dataclass(frozen=True, slots=True)
class Record:
    """Hold one record of any table.

    Args:
        table: Name of the table.
        cells: By column, as they stand in a shard.
        length: Number of ids that it speaks of, for `shown`; packed cells do not say it.
    """

    table: str
    cells: Mapping[str, Any]
    length: int = 0


def shown(record: Record) -> dict[str, Any]:
    """Return a record by column: ids as int32, log-probabilities as float32 arrays, digests as hex text.

    Raises:
        TraceCorrupt: A packed cell is damaged.
    """
    cells, lengths = record.cells, {"ids": record.length, "logprobs": record.length}
    if record.table == "evidence":
        lengths = {"counts": record.length, "experts": record.length * (cells["layers"] or 0) * (cells["chosen"] or 0)}
    out: dict[str, Any] = {}
    for column in BY_NAME[record.table].columns:
        value = cells[column.name]
        if value is not None and column.form == "ids":
            value = unpack_ids(value, lengths[column.name])
            if column.name == "counts":
                lengths["support"] = int(value.sum())
        elif value is not None and column.form == "logprobs":
            value = unpack_logprobs(value, lengths[column.name])
        elif value is not None and column.form == "digest":
            value = value.hex()
        out[column.name] = value
    return out


def record_from(table: str, values: Mapping[str, Any]) -> Record:
    """Make a record of what `shown` gave, or of what was read from a file; lists will do for arrays.

    Args:
        table: Name of the table.
        values: By column.

    Raises:
        TraceCorrupt: There is no such table, columns are missing or unknown, or a value fits no cell.
    """
    if table not in BY_NAME:
        raise TraceCorrupt("no table has this name", where=repr(table), expected=", ".join(BY_NAME))
    columns = BY_NAME[table].columns
    names = [column.name for column in columns]
    if set(names) != set(values):
        odd = sorted(set(names) ^ set(values))
        raise TraceCorrupt("columns are missing or unknown", where=table, got=odd, expected=names)
    cells = {column.name: _cell(table, column, values[column.name]) for column in columns}
    return Record(table, cells)


def _cell(table: str, column: Column, value: Any) -> Value:
    if value is None and column.nullable:
        return None
    read = _READ.get(column.form) or _READ[column.type]
    try:
        return read(value)
    except (ValueError, TypeError, OverflowError) as error:
        where, expected = f"{table}.{column.name}", f"{column.form} {column.type}".removeprefix("plain ")
        raise TraceCorrupt("it fits no cell", where=where, got=error, expected=expected) from error


def _ids(value: Any) -> bytes:
    return pack_ids(as_ids(value, where="a list"))


def _logprobs(value: Any) -> bytes:
    return pack_logprobs(np.asarray(value, np.float32))


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.60}")
    value.to_bytes(8, "little", signed=True)  # or it overflows
    return value


def _real(value: Any) -> float:
    if type(value) not in {int, float}:
        raise TypeError(f"{value!r:.60}")
    return float(value) + 0.0  # negative zero would not survive the file


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.60}")
    value.encode()  # or it has lone surrogates
    return value


def _blob(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError(f"{value!r:.60}")
    return value


_READ: Final[Mapping[str, Callable[[Any], Value]]] = {
    "ids": _ids,
    "logprobs": _logprobs,
    "digest": bytes.fromhex,
    "INTEGER": _integer,
    "REAL": _real,
    "TEXT": _text,
    "BLOB": _blob,
}
