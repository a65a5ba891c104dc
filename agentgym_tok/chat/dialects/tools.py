"""What is known of the tools that a turn may call, and values that only their schemas can type."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

__all__ = ["Tools", "decode_json", "decode_members"]

# Some templates write Python's words.
_WORDS = {"True": "true", "False": "false", "None": "null"}


class Tools:
    """Hold the tools of a conversation.

    Args:
        schemas: JSON schemas of functions, bare or as `{"type": "function", "function": {...}}`; None knows no names.

    Attributes:
        schemas: The same.
    """

    def __init__(self, schemas: Sequence[Mapping[str, Any]] | None) -> None:
        self.schemas = schemas

    def knows(self, name: str) -> bool:
        """Tell whether a tool has this name; all names are known where no tools were given."""
        return self.schemas is None or name in self._functions

    def value(self, name: str, key: str, text: str) -> Any:
        """Return the value of an argument that a dialect writes as bare text.

        Args:
            name: The tool.
            key: The argument.
            text: What stands in the turn.

        Returns:
            The JSON value where the argument's schema allows no string and the text is such a value; else the text.
        """
        parameters = self._functions.get(name, {}).get("parameters") or {}
        kinds = _kinds((parameters.get("properties") or {}).get(key), parameters)
        word = text.strip()
        word = _WORDS.get(word, word)
        if not kinds or "string" in kinds:
            return None if "null" in kinds and word == "null" else text
        try:
            value = decode_json(word)
        except ValueError:
            return text
        return value if _kind(value) in kinds or (_kind(value) == "integer" and "number" in kinds) else text

    @cached_property
    def _functions(self) -> dict[str, Mapping[str, Any]]:
        functions = [tool.get("function", tool) for tool in self.schemas or ()]
        return {function["name"]: function for function in functions if "name" in function}


def decode_json(text: str) -> Any:
    """Return the value of a JSON text (RFC 8259: no NaN, no infinities).

    Raises:
        ValueError: It is no JSON, or nested too deeply, or has a number too long to be read.
    """
    try:
        return _JSON.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode_members(text: str) -> tuple[Any, bool]:
    """Return the value of a JSON text, and whether the keys differ where it is an object (not those of inner objects).

    Raises:
        ValueError: As `decode_json`.
    """
    sizes = [0]

    def member(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        sizes[0] = len(pairs)  # the outermost object comes last
        return dict(pairs)

    try:
        value = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=member).decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value, not isinstance(value, dict) or sizes[0] == len(value)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)


def _kinds(schema: Any, root: Mapping[str, Any], depth: int = 8) -> set[str]:
    """Return the JSON types that a schema names; none where it leaves them open."""
    if not isinstance(schema, Mapping) or depth == 0:
        return set()
    named = schema.get("type")
    kinds: set[str] = {named} if isinstance(named, str) else set(named or ())
    inner = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ()), *(schema.get("allOf") or ())]
    if "$ref" in schema:
        inner.append(_resolve(str(schema["$ref"]), root))
    for part in inner:
        kinds |= _kinds(part, root, depth - 1)
    values = [*(schema.get("enum") or ()), *([schema["const"]] if "const" in schema else ())]
    return kinds or {_kind(value) for value in values}


def _resolve(pointer: str, root: Any) -> Any:
    for name in pointer.removeprefix("#/").split("/"):
        root = root.get(name) if isinstance(root, Mapping) else None
    return root


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"
