"""Reading a request's body: what is known in its exact types, the rest by name, and errors that name the field."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, NoReturn, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agentgym_tok.chat.tokenizer import replace_surrogates
from agentgym_tok.errors import AgentGymTokError
from agentgym_tok.types import Sampling

__all__ = [
    "AskPart",
    "BadAsk",
    "JsonObject",
    "Notes",
    "Seed",
    "json_object",
    "mended",
    "read_ask",
    "read_sampling",
    "refuse_set",
]

_DEEPEST: Final = 200
_WAYS: Final = frozenset({"str"})  # what pydantic calls the ways to read a union, besides `list[...]`
_Model = TypeVar("_Model", bound="AskPart")


class BadAsk(AgentGymTokError, ValueError):
    """A request is none of its protocol, or asks for what cannot be kept (status 400); `where` names the field."""


def _checked(value: Any) -> Any:
    """Return a value as it is, if all its numbers are JSON: what reads bodies takes NaN, and 1e999 for infinity."""
    if isinstance(value, dict | list):
        for inner in _inside(value):
            if not isinstance(inner, str):
                _checked(inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("NaN and infinities are no JSON")
    return value


_Json: TypeAlias = Annotated[Any, AfterValidator(_checked)]

JsonObject: TypeAlias = Annotated[dict[str, Any], AfterValidator(_checked)]
"""An object of which nothing is known but that it is JSON (RFC 8259), without NaN and infinities."""

Seed: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""What a trace holds and every engine takes."""


class AskPart(BaseModel):
    """Hold what is read of a request; clients may say more."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    __pydantic_extra__: dict[str, _Json] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]


class Notes:
    """Collect the names of fields that have no effect."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, name: str) -> None:
        """Note one field."""
        self._names[name] = None

    def extras(self, part: AskPart, path: str = "") -> None:
        """Note the unknown fields of a part, except those that say nothing."""
        if part.__pydantic_extra__:
            self._names.update(
                (f"{path}{name}", None) for name, given in part.__pydantic_extra__.items() if given is not None
            )

    @property
    def names(self) -> tuple[str, ...]:
        """What was noted, in order."""
        return tuple(self._names)


def read_ask(model: type[_Model], body: bytes) -> tuple[_Model, int]:
    r"""Read a request's body; returns it and the number of lone surrogates in it that became U+FFFD.

    Clients cut texts in the middle of a sign and send one half of it as `\ud83d`, which strict readers refuse.

    Raises:
        BadAsk: It is no JSON, or none of this protocol.
    """
    try:
        return model.model_validate_json(body), 0
    except ValidationError as error:
        wrong = error
    if wrong.errors()[0]["type"] == "json_invalid" and b"\\u" in body:
        try:
            document, replaced = mended(json.loads(body, parse_constant=_no_constant))
            return model.model_validate_json(json.dumps(document)), replaced
        except ValidationError as error:
            wrong = error
        except (ValueError, RecursionError):
            pass
    raise _bad(wrong)


def mended(value: Any) -> tuple[Any, int]:
    """Return a JSON value with U+FFFD for every lone surrogate, and their number."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        found = [mended(one) for one in value]
        return [one for one, _ in found], sum(number for _, number in found)
    if isinstance(value, dict):
        pairs = [(replace_surrogates(name), mended(one)) for name, one in value.items()]
        return {name: one for (name, _), (one, _) in pairs}, sum(a + b for (_, a), (_, b) in pairs)
    return value, 0


def json_object(text: str) -> dict[str, Any] | None:
    """Read a JSON object; None where the text is none, or one that is nested too deep to be walked by recursion.

    Numbers that are none (NaN) or that no double holds (1e999) make it none: nobody can write them again.
    """
    try:
        found = _OBJECTS.decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or (text.count("{") + text.count("[") > _DEEPEST and _is_deep(found)):
        return None
    return found


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [inner for one in level if isinstance(one, dict | list) for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def read_sampling(given: Mapping[str, Any], names: Mapping[str, str]) -> Sampling:
    """Read sampling parameters; what is None was not set.

    Args:
        given: The parameters, by our names.
        names: The protocol's name of each, where it is another one.

    Raises:
        BadAsk: One is out of range.
    """
    try:
        return Sampling(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(first["loc"][0])
        raise BadAsk("this cannot be sampled", where=names.get(name, name), got=first["msg"]) from None


def refuse_set(part: AskPart, neutral: Mapping[str, Sequence[Any]]) -> None:
    """Refuse fields that would change the answer and that nothing here can keep.

    Args:
        part: Holds the fields among its unknown ones.
        neutral: The values of each that change nothing, besides null.

    Raises:
        BadAsk: A field has another value.
    """
    for name, given in (part.__pydantic_extra__ or {}).items():
        if given is not None and name in neutral and given not in neutral[name]:
            raise BadAsk(f"{name} is not supported", where=name, fix="leave it out")


def _bad(error: ValidationError) -> BadAsk:
    """Say what is wrong; of the ways to read a value, the one that got furthest."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    found = max(errors, key=lambda one: len(one["loc"]))
    if found["type"] == "json_invalid":
        return BadAsk("the body is no JSON", where="body", got=found["msg"].removeprefix("Invalid JSON: "))
    steps = [step for step in found["loc"] if step not in _WAYS and "[" not in str(step)]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return BadAsk("this field is wrong", where=path.removeprefix(".") or "body", got=found["msg"])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


_OBJECTS: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
