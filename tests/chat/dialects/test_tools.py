"""Bare text becomes the value that the tool's schema allows, and stays text where it is none."""

from typing import Any

import pytest

from agentgym_tok.chat.dialects.tools import Tools, decode_json

NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, " null\n", " null\n"),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, " -5\n", -5),
        ({"type": "integer"}, "5.5", "5.5"),
        ({"type": "integer"}, "five", "five"),
        ({"type": "integer"}, "true", "true"),
        ({"type": "integer"}, "9" * 5000, "9" * 5000),
        ({"type": "integer"}, "", ""),
        ({"type": "number"}, "5", 5),
        ({"type": "number"}, "1e+22", 1e22),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "boolean"}, "1", "1"),
        ({"type": "null"}, "None", None),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"type": "object"}, "{a: 1}", "{a: 1}"),
        ({"type": "array"}, "[" * 5000, "[" * 5000),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "5", "5"),
        (NULLABLE, "None", None),
        (NULLABLE, "x", "x"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["1", "2"]}, "2", "2"),
        ({"const": True}, "true", True),
        ({"allOf": [{"type": "integer"}]}, "3", 3),
        ({"$ref": "#/$defs/Point"}, '{"x": 1}', {"x": 1}),
        ({"$ref": "#/$defs/Missing"}, "1", "1"),
        ({"$ref": "#/$defs/Loop"}, "1", "1"),
        ({}, "1", "1"),
        (True, "1", "1"),
    ],
)
def test_a_value_is_typed_by_its_schema(schema: Any, text: str, value: Any) -> None:
    definitions = {"Point": {"type": "object"}, "Loop": {"$ref": "#/$defs/Loop"}}
    parameters = {"properties": {"a": schema}, "$defs": definitions}
    tools = Tools([{"type": "function", "function": {"name": "f", "parameters": parameters}}])
    found = tools.value("f", "a", text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "schemas", [None, [], [{"name": "f"}], [{"name": "g", "parameters": {}}], [{"parameters": {}}]]
)
def test_without_a_schema_values_stay_text(schemas: Any) -> None:
    assert Tools(schemas).value("f", "a", "1") == "1"


def test_names_are_known_from_either_shape_and_all_of_them_without_tools() -> None:
    tools = Tools([{"name": "f"}, {"type": "function", "function": {"name": "g"}}])
    assert [tools.knows(name) for name in ("f", "g", "h")] == [True, True, False]
    assert Tools(None).knows("h")
    assert not Tools([]).knows("f")


@pytest.mark.parametrize("text", ["", "NaN", "[Infinity]", "{'a': 1}", "[" * 100_000, "1" * 5000, '{"a": 1} x'])
def test_what_is_no_json_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_json(text)
