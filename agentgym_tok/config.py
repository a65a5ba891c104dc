"""The base of every configuration model, and where two configurations differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = ["Config", "differences"]


class Config(BaseModel):
    """Refuse unknown names, never change, and hash and pickle as a value."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


def differences(first: Any, second: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted name of each value that differs, and both values; what one side lacks is None there.

    Args:
        first: A JSON value.
        second: Another one.
        name: What they are called.
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in sorted(first.keys() | second.keys()):
            yield from differences(first.get(key), second.get(key), f"{name}.{key}" if name else key)
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{name}.{place}")
    elif first != second:
        yield name, first, second
