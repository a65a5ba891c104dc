"""Options behind a policy's name, `hf:PATH?batch_size=8&device=cpu`: those of its class, read by their types."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from pydantic import TypeAdapter, ValidationError

from agentgym_tok.errors import ConfigError, unknown_name

__all__ = ["checked_options", "split_options"]


def split_options(name: str) -> tuple[str, dict[str, str]]:
    """Split a policy's name from its options, which stand between `?` and the end or a `#`, as in an address.

    Raises:
        ConfigError: They are no `NAME=VALUE` joined by `&`, or one comes twice.
    """
    before, _, behind = name.partition("?")
    written, hash_, fragment = behind.partition("#")
    try:
        pairs = parse_qsl(written, keep_blank_values=True, strict_parsing=True) if written else []
    except ValueError as error:
        raise _unreadable(name, str(error)) from None
    options = dict(pairs)
    if len(options) < len(pairs):
        raise _unreadable(name, "an option that comes twice")
    return before + hash_ + fragment, options


def checked_options(made: Callable[..., Any], options: Mapping[str, str], where: str) -> dict[str, Any]:
    """Read options by the types of a class's keyword-only parameters.

    Args:
        made: The class.
        options: What was written.
        where: The policy, for errors.

    Raises:
        UnknownName: The class has no such option.
        ConfigError: A value is none of its type.
    """
    parameters = inspect.signature(made, eval_str=True).parameters.values()
    known = {one.name: one.annotation for one in parameters if one.kind is one.KEYWORD_ONLY}
    values: dict[str, Any] = {}
    for name, text in options.items():
        if name not in known:
            raise unknown_name("option", name, known, where=where)
        try:
            values[name] = TypeAdapter(known[name]).validate_python(text)
        except ValidationError as error:
            expected = error.errors()[0]["msg"]
            raise ConfigError(
                "an option's value is none", where=f"{where}: {name}", got=text, expected=expected
            ) from None
    return values


def _unreadable(name: str, got: str) -> ConfigError:
    return ConfigError(
        "the options behind a policy cannot be read",
        where=name,
        got=got,
        expected="POLICY?NAME=VALUE&NAME=VALUE",
    )
