"""The JSON Schema of a log of records, made of the one schema source; docs/trace.schema.json holds it."""

import json
from typing import Any, Final

from agentgym_tok.trace.schema import FORMAT, TABLES, Column, Table

__all__ = ["json_schema", "json_schema_text"]

_PLAIN: Final[dict[str, dict[str, Any]]] = {
    "INTEGER": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "REAL": {"type": "number"},
    "TEXT": {"type": "string"},
}
_FORMS: Final[dict[str, dict[str, Any]]] = {
    "json": {"type": "string", "contentMediaType": "application/json"},
    "digest": {"type": "string", "pattern": "^([0-9a-f]{32}|[0-9a-f]{64})$"},
    "ids": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}},
    "logprobs": {"type": "array", "items": {"type": "number"}},
    "file": {"type": "string", "contentEncoding": "base64"},
}
_SHOWN: Final = {"digest": "; hex", "ids": "; a list here", "logprobs": "; a list of float32 here", "file": "; base64"}


def json_schema() -> dict[str, Any]:
    """Return the schema of one line (JSON Schema, draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of a trace, format {FORMAT[0]}.{FORMAT[1]}",
        "description": "Made of agentgym_tok/trace/schema.py. docs/design/trace.md says what the tables mean.",
        "type": "object",
        "required": ["table"],
        "oneOf": [{"$ref": f"#/$defs/{table.name}"} for table in TABLES],
        "$defs": {table.name: _table(table) for table in TABLES},
    }


def json_schema_text() -> str:
    """Return the schema as it stands in docs/trace.schema.json."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def _table(table: Table) -> dict[str, Any]:
    columns = {column.name: _column(column) for column in table.columns}
    return {
        "description": table.doc,
        "type": "object",
        "properties": {"table": {"const": table.name}, **columns},
        "required": ["table", *columns],
        "additionalProperties": False,
    }


def _column(column: Column) -> dict[str, Any]:
    kind = _PLAIN[column.type] if column.form == "plain" else _FORMS[column.form]
    schema = {"description": column.doc + _SHOWN.get(column.form, ""), **kind}
    if column.nullable:
        schema["type"] = [schema["type"], "null"]
    return schema
