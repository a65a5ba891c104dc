"""What tools return or raise, as text for a policy."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

__all__ = ["error_words", "result_words", "shorten"]

_NOTHING = "(no result)"
_LONGEST_ERROR = 1000


def result_words(value: Any) -> str:
    """Return a result as text: a text as it is, None as "(no result)", all else as JSON.

    Sets are sorted, so that equal results have equal texts in every process.

    Raises:
        TypeError: It is no JSON.
        ValueError: It holds itself.
        RecursionError: It is nested too deeply.
    """
    if isinstance(value, str):
        return str.__str__(value)  # a subclass' own idea of itself is not asked for
    return _NOTHING if value is None else json.dumps(value, ensure_ascii=False, default=_plain)


def error_words(error: BaseException) -> str:
    """Return the name and the words of an error, shortened; one that cannot be written has its name only.

    A plain ValueError says what is wrong with the arguments, and goes without its name.
    """
    name = type(error).__name__
    try:
        text = str(error)
    except (Exception, SystemExit):  # noqa: BLE001  # foreign code
        return name
    if not text:
        return name
    return shorten(text if type(error) is ValueError else f"{name}: {text}", _LONGEST_ERROR)[0]


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Cut a long text in its middle, and say so there.

    Args:
        text: Any text.
        limit: Most characters, at least 100; the note counts among them.

    Returns:
        The text, and how many characters were left out.
    """
    if len(text) <= limit:
        return text, 0
    note = "\n[... {} characters left out ...]\n"
    room = limit - len(note.format(len(text)))
    head, tail = room - room // 2, room // 2
    left_out = len(text) - room
    return f"{text[:head]}{note.format(left_out)}{text[-tail:]}", left_out


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Iterator):  # it may never end
        raise TypeError(f"a tool returned a {type(value).__name__}, which is no text and no JSON")
    return to_jsonable_python(value, fallback=_refuse)


def _refuse(value: Any) -> Any:
    raise TypeError(f"a tool returned a {type(value).__name__}, which is no text and no JSON")
