"""The schema says what the function takes, and what is read by it is what the function gets."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentgym_tok.errors import ConfigError
from agentgym_tok.harness.tools.parameters import Parameters


class Place(BaseModel):
    """A place."""

    title: str
    at: tuple[float, float] = (0.0, 0.0)


@dataclass
class Trip:
    to: Place
    day: date


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


def plan(
    trips: list[Trip],
    title: str,
    speed: Speed = Speed.SLOW,
    limit: Optional[int] = None,  # noqa: UP045  # the older spelling must work as well
    *,
    mode: Literal["car", "train"] = "car",
    fee: Annotated[float, Field(ge=0, description="In euros.")] = 1.5,
    **_: None,
) -> None:
    """Plan trips.

    Each of them once.

    Args:
        trips: Where to go,
            and when.
        title (str): What the plan is called.
        fee: Never shown, since the type says it.

    Returns:
        Nothing.
    """


def _without_kwargs(function: Callable[..., Any]) -> Callable[..., Any]:
    import inspect

    signature = inspect.signature(function)
    kept = [parameter for name, parameter in signature.parameters.items() if name != "_"]
    function.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return function


def test_a_signature_and_its_docstring_become_this_schema() -> None:
    parameters = Parameters(_without_kwargs(plan), "plan")
    assert parameters.description == "Plan trips.\n\nEach of them once."
    assert parameters.schema == {
        "type": "object",
        "properties": {
            "trips": {
                "type": "array",
                "description": "Where to go, and when.",
                "items": {"$ref": "#/$defs/Trip"},
            },
            "title": {"type": "string", "description": "What the plan is called."},
            "speed": {"$ref": "#/$defs/Speed", "default": "slow"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "mode": {"type": "string", "enum": ["car", "train"], "default": "car"},
            "fee": {"type": "number", "description": "In euros.", "default": 1.5, "minimum": 0},
        },
        "required": ["trips", "title"],
        "$defs": {
            "Place": {
                "type": "object",
                "description": "A place.",
                "properties": {
                    "title": {"type": "string"},
                    "at": {
                        "type": "array",
                        "default": [0.0, 0.0],
                        "maxItems": 2,
                        "minItems": 2,
                        "prefixItems": [{"type": "number"}, {"type": "number"}],
                    },
                },
                "required": ["title"],
            },
            "Trip": {
                "type": "object",
                "properties": {"to": {"$ref": "#/$defs/Place"}, "day": {"type": "string", "format": "date"}},
                "required": ["to", "day"],
                "additionalProperties": False,
            },
            "Speed": {"type": "string", "enum": ["slow", "fast"]},
        },
    }
    assert list(parameters.schema["properties"]) == ["trips", "title", "speed", "limit", "mode", "fee"]
    assert list(parameters.schema) == ["type", "properties", "required", "$defs"]


def test_nested_values_reach_the_function_as_its_own_types() -> None:
    parameters = Parameters(_without_kwargs(plan), "plan")
    trip = {"to": {"title": "Bern", "at": [1, 2]}, "day": "2024-02-29"}
    assert parameters.read({"trips": [trip], "title": "t", "speed": "fast", "mode": "train"}) == {
        "trips": [Trip(Place(title="Bern", at=(1.0, 2.0)), date(2024, 2, 29))],
        "title": "t",
        "speed": Speed.FAST,
        "mode": "train",
    }


def test_faults_are_told_one_by_one_with_what_there_is() -> None:
    parameters = Parameters(_without_kwargs(plan), "plan")
    trip = {"to": {"title": 3}, "day": "never"}
    with pytest.raises(ValueError, match="Input should be") as caught:
        parameters.read({"trips": [trip], "mode": "boat", "fee": -1, "mood": "good"})
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "- trips.0.to.title",
        "- trips.0.day",
        "- title",
        "- mode",
        "- fee",
        "- mood",
        "It takes",
    ]
    assert lines[-1] == "It takes: trips, title, speed (optional), limit (optional), mode (optional), fee (optional)."


def test_a_hundred_faults_are_told_in_a_few_lines() -> None:
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with pytest.raises(ValueError, match="- and 92 more") as caught:
        Parameters(total, "total").read({"numbers": ["x" * 10_000] * 100})
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("given_", [{"x": float("nan")}, {"x": float("inf")}, {1: 2}, {"x": 1.0, None: 2}, {}])
def test_nan_and_keys_that_are_no_text_are_refused(given_: dict[Any, Any]) -> None:
    def double(x: float) -> float:
        return 2 * x

    with pytest.raises(ValueError, match="It takes: x"):
        Parameters(double, "double").read(given_)


def test_names_that_models_keep_for_themselves_are_names_like_others() -> None:
    def odd(model_config: int, _private: int, copy: int, model_fields: int, schema: int = 1, title: str = "") -> None:
        pass

    parameters = Parameters(odd, "odd")
    assert list(parameters.schema["properties"]) == [
        "model_config",
        "_private",
        "copy",
        "model_fields",
        "schema",
        "title",
    ]
    values = {"model_config": 1, "_private": 2, "copy": 3, "model_fields": 4}
    assert parameters.read(values) == values


def test_defaults_are_the_functions_own_and_shown_where_json_can() -> None:
    shared: list[int] = []

    def f(a: list[int] = shared, b: float = float("inf"), c: Any = object, d: str = "x") -> None:
        pass

    parameters = Parameters(f, "f")
    shown = {name: schema.get("default", "none") for name, schema in parameters.schema["properties"].items()}
    assert shown == {"a": [], "b": "none", "c": "none", "d": "x"}
    assert parameters.read({}) == {}


def test_a_default_in_the_type_is_given_to_the_function() -> None:
    def f(x: Annotated[int, Field(default=3)]) -> int:
        return x

    parameters = Parameters(f, "f")
    assert parameters.read({}) == {"x": 3}
    assert "required" not in parameters.schema


def test_what_a_partial_has_filled_is_not_asked_for() -> None:
    def find(where: object, text: str, most: int = 3) -> None:
        """Find."""

    parameters = Parameters(functools.partial(find, object(), most=5), "find")
    assert parameters.schema["properties"] == {"text": {"type": "string"}, "most": {"type": "integer", "default": 5}}
    assert parameters.description == "Find."


def test_a_wrapped_function_has_the_signature_of_what_it_wraps() -> None:
    def inner(x: int) -> int:
        """Do it.

        Args:
            x: How often.
        """
        return x

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> int:
        return inner(*args, **kwargs)

    for function in (outer, functools.lru_cache(inner)):
        parameters = Parameters(function, "f")
        assert parameters.schema["properties"] == {"x": {"type": "integer", "description": "How often."}}
        assert parameters.description == "Do it."


def _untyped(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return x


def _many(*xs: int) -> None: ...
def _any_name(**xs: int) -> None: ...
def _by_place(x: int, /) -> None: ...
def _array(x: np.ndarray) -> None: ...
def _function(x: Callable[[int], int]) -> None: ...
def _nowhere(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _nested_nowhere(x: "list[Nowhere]") -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Holder:
    def act(self, x: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_untyped, "no type; where: it; got: x; next: write its type: `x: str`"),
        (_many, r"by name; where: it; got: \*xs"),
        (_any_name, r"by name; where: it; got: \*\*xs"),
        (_by_place, "by name; where: it"),
        (_array, "cannot be given in JSON; where: it; got: .*ndarray"),
        (_function, "cannot be given in JSON"),
        (_nowhere, "cannot be read; where: it; got: name 'Nowhere'.*TYPE_CHECKING"),
        (_nested_nowhere, "cannot be read; where: it; got: name 'Nowhere'"),
        (Holder.act, "no type; where: it; got: self; next: pass a method of an object"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_what_to_do(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Parameters(function, "it")


# ---- random signatures

KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-(10**30), 10**30)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (str, st.text()),
    (list[int], st.lists(st.integers(-9, 9), max_size=3)),
    (dict[str, float], st.dictionaries(st.text(max_size=3), st.floats(-1e6, 1e6), max_size=3)),
    (int | None, st.none() | st.integers(-9, 9)),
    (int | str, st.integers(-9, 9) | st.text(max_size=3)),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    (list[list[str]], st.lists(st.lists(st.text(max_size=2), max_size=2), max_size=2)),
]
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not _is_keyword(name))


def _is_keyword(name: str) -> bool:
    import keyword

    return keyword.iskeyword(name)


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Callable[..., Any], dict[str, Any], set[str]]:
    """Return a function that returns what it gets, arguments that fit, and the names that have defaults."""
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    required = draw(st.integers(0, len(names)))
    kinds = [draw(st.sampled_from(KINDS)) for _ in names]
    left_out = {name for name in names[required:] if draw(st.booleans())}
    arguments = {name: draw(values) for name, (_, values) in zip(names, kinds, strict=True) if name not in left_out}
    heads = [name if place < required else f"{name}=..." for place, name in enumerate(names)]
    scope: dict[str, Any] = {}
    body = ", ".join(f"{name!r}: {name}" for name in names)
    exec(f"def f({', '.join(heads)}):\n    return {{{body}}}", scope)
    scope["f"].__annotations__ = {name: kind for name, (kind, _) in zip(names, kinds, strict=True)}
    return scope["f"], arguments, left_out


@given(signatures())
def test_arguments_come_through_any_signature_unchanged(
    case: tuple[Callable[..., Any], dict[str, Any], set[str]],
) -> None:
    function, arguments, left_out = case
    parameters = Parameters(function, "f")
    sent = json.loads(json.dumps(arguments))
    jsonschema.Draft202012Validator.check_schema(parameters.schema)
    jsonschema.validate(sent, parameters.schema)
    got = function(**parameters.read(sent))
    assert got == {**arguments, **dict.fromkeys(left_out, ...)}
    assert {name: type(value) for name, value in got.items() if name in arguments} == {
        name: type(value) for name, value in arguments.items()
    }
