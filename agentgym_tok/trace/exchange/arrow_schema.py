"""Arrow schemas of the tables and of training rows, made of the one schema source (extra `parquet`)."""

import importlib
from typing import Any

from agentgym_tok.errors import MissingExtra
from agentgym_tok.trace.schema import Column, Table

__all__ = ["arrow_schema", "pyarrow", "rows_schema"]


def pyarrow() -> Any:
    """Return the package pyarrow, with its module `parquet`.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ImportError as error:
        fix = 'pip install "agentgym-tok[parquet]"'
        raise MissingExtra("Parquet files need pyarrow", where="trace", fix=fix) from error


def arrow_schema(table: Table) -> Any:
    """Return the `pyarrow.Schema` of a table, as `shown` gives its records."""
    pa = pyarrow()
    return pa.schema([pa.field(column.name, _type(pa, column), column.nullable) for column in table.columns])


def _type(pa: Any, column: Column) -> Any:
    match column.form:
        case "ids":
            return pa.list_(pa.int32())
        case "logprobs":
            return pa.list_(pa.float32())
        case "digest":
            return pa.string()
    return {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string(), "BLOB": pa.binary()}[column.type]


def rows_schema() -> Any:
    """Return the `pyarrow.Schema` of training rows: the fields of `Row` without the suffixes of their axes."""
    pa = pyarrow()
    fields = {
        "ids": pa.list_(pa.int32()),
        "mask": pa.list_(pa.bool_()),
        "logprobs": pa.list_(pa.float32()),
        "version": pa.list_(pa.int32()),
        "turn": pa.list_(pa.int32()),
        "temperature": pa.list_(pa.float32()),
        "reward": pa.float64(),
        "turn_rewards": pa.list_(pa.float64()),
        "anchor": pa.list_(pa.string()),
        "valid": pa.list_(pa.int8()),
        "rollout_id": pa.string(),
        "group_id": pa.string(),
        "task": pa.string(),
        "parent_rollout": pa.string(),
        "weight": pa.float64(),
        "status": pa.string(),
        "versions": pa.list_(pa.string()),
        "experts": pa.list_(pa.list_(pa.list_(pa.uint16()))),
        "support": pa.list_(pa.list_(pa.int32())),
    }
    empty = {"parent_rollout", "experts", "support"}
    return pa.schema([pa.field(name, kind, name in empty) for name, kind in fields.items()])
