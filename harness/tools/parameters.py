"""What a function takes: a JSON schema of its signature and docstring, and the reading of arguments by it."""

import functools
import inspect
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from agentgym_tok.errors import ConfigError

__all__ = ["Parameters", "signed"]

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)
_ABSENT: Any = object()
_FIRST = ("type", "description", "properties", "required")
_NAMED = frozenset({"properties", "$defs"})
_VALUES = frozenset({"default", "const", "enum", "examples"})
_MOST_FAULTS = 8


class Parameters:
    """Hold what a function takes.

    Values are read as pydantic reads them: a whole number may stand for a float, a text for a date; unknown names and
    NaN are refused. What a call leaves out, the function's own defaults fill.

    Args:
        function: Every parameter is typed, and can be given by its name.
        where: Names the tool in errors.

    Attributes:
        description: What the docstring says outside its sections.
        schema: JSON schema of the arguments, an object. Descriptions are those of the docstring, unless the type has
            one by `Field(description=)`.

    Raises:
        ConfigError: A parameter has no type, cannot be given by name, or is of a type that JSON cannot hold.
    """

    def __init__(self, function: Callable[..., Any], where: str) -> None:
        doc = docstring_parser.parse(_docstring(function))
        self.description = (doc.description or "").strip()
        told = {param.arg_name: " ".join((param.description or "").split()) for param in doc.params}
        fields: dict[str, Any] = {
            f"argument_{place}": (kind, _field(parameter, kind, told.get(parameter.name)))
            for place, (parameter, kind) in enumerate(_typed(function, where))
        }
        try:
            self._model: type[BaseModel] = create_model("Arguments", __config__=_CONFIG, **fields)
            schema = self._model.model_json_schema()
        except (PydanticUserError, TypeError) as error:
            raise ConfigError(
                "a parameter's type cannot be given in JSON",
                where=where,
                got=str(error).partition("\n")[0],
                expected="numbers, texts, lists, Literal, Optional, dataclasses, pydantic models, ...",
                fix="take such a value, and make the other object inside the function",
            ) from error
        schema.pop("additionalProperties")  # unknown names are refused, and need no words in every prompt
        self.schema = _bare({"properties": {}, **schema})
        self._names = {name: str(field.alias) for name, field in self._model.model_fields.items()}

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as the function takes them.

        Raises:
            ValueError: They do not fit; the message says how, a line for each fault, and names what there is.
        """
        try:
            found = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ValueError("\n".join([*_faults(error), self._summary()])) from error
        given = {alias: getattr(found, name) for name, alias in self._names.items()}
        return {alias: value for alias, value in given.items() if value is not _ABSENT}

    def _summary(self) -> str:
        required = self.schema.get("required", ())
        names = [name if name in required else f"{name} (optional)" for name in self.schema["properties"]]
        return f"It takes: {', '.join(names)}." if names else "It takes no arguments."


def signed(function: Callable[..., Any]) -> Any:
    """Return the function whose annotations and docstring a callable has."""
    if isinstance(function, functools.partial):
        return signed(function.func)
    return function if inspect.isroutine(function) else type(function).__call__


def _docstring(function: Callable[..., Any]) -> str:
    plain = signed(function)
    # Not by inspect.getdoc, which finds the words of `object.__call__`; an object may say all in its class.
    doc = plain.__doc__ or (type(function).__doc__ if plain is type(function).__call__ else None)
    return inspect.cleandoc(doc or "")


def _typed(function: Callable[..., Any], where: str) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Yield each parameter with its type."""
    try:
        parameters = inspect.signature(function).parameters
        hints = typing.get_type_hints(signed(function), include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        fix = "import the types at run time, outside of `if TYPE_CHECKING`"
        raise ConfigError("a tool's signature cannot be read", where=where, got=str(error), fix=fix) from error
    for name, parameter in parameters.items():
        if parameter.kind not in {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}:
            fix = "name each parameter; take a list or a dict for many values"
            raise ConfigError("a tool's arguments come by name", where=where, got=str(parameter), fix=fix)
        if name not in hints:
            fix = "pass a method of an object" if name == "self" else f"write its type: `{name}: str`"
            raise ConfigError("a parameter has no type", where=where, got=name, fix=fix)
        yield parameter, hints[name]


def _field(parameter: inspect.Parameter, kind: Any, told: str | None) -> Any:
    # Behind an alias, since a field of a model cannot have every name that a parameter can.
    options: dict[str, Any] = {"alias": parameter.name}
    marks = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    if told and not any(isinstance(mark, FieldInfo) and mark.description for mark in marks):
        options["description"] = told
    if parameter.default is not inspect.Parameter.empty:
        options["default_factory"] = _absent  # never validated, copied or shared: the function itself has the default
        try:
            shown = json.loads(json.dumps(to_jsonable_python(parameter.default), allow_nan=False))
        except (TypeError, ValueError):
            return Field(**options)
        options["json_schema_extra"] = {"default": shown}
    return Field(**options)


def _absent() -> Any:
    return _ABSENT


def _bare(schema: Any) -> Any:
    """Leave out titles, which only repeat names, and put first what templates and models expect first."""
    if isinstance(schema, list):
        return [_bare(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    bare: dict[str, Any] = {}
    for key in sorted(schema.keys() - {"title"}, key=lambda key: (_FIRST.index(key) if key in _FIRST else 9, key)):
        if key in _NAMED:
            bare[key] = {name: _bare(part) for name, part in schema[key].items()}
        else:
            bare[key] = schema[key] if key in _VALUES else _bare(schema[key])
    return bare


def _faults(error: ValidationError) -> Iterator[str]:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    for fault in faults[:_MOST_FAULTS]:
        yield f"- {'.'.join(str(step)[:80] for step in fault['loc']) or 'arguments'}: {fault['msg'][:300]}"
    if len(faults) > _MOST_FAULTS:
        yield f"- and {len(faults) - _MOST_FAULTS} more"
