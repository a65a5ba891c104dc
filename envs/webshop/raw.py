"""WebShop's raw JSON files: read row by row, so that a catalogue of any size needs little memory."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from agentgym_tok.errors import DataCorrupt, DataMissing

__all__ = ["Record", "bad", "iterate_rows", "read_object", "texts"]

_ITEMS = "a JSON list of products, or one product a line"

_CHUNK = 1 << 22  # characters
_LARGEST_ROW = 1 << 26
_GAPS = " \t\r\n"
_GET = "give the official WebShop files, or check the path"

_KINDS: Mapping[type, str] = {str: "a text", list: "a list", object: "a value"}
_DECODE = json.JSONDecoder().raw_decode

T = TypeVar("T")


def bad(where: object, got: object, expected: str) -> DataCorrupt:
    """Make the error for data that are not what they should be."""
    shown = repr(got)
    return DataCorrupt(
        "data that do not fit WebShop's schema",
        where=where,
        got=shown if len(shown) <= 200 else f"{shown[:200]}...",
        expected=expected,
        fix="correct or remove the row; official files need no change",
    )


class Record:
    """Read fields of one JSON object and name the field where it is not as it should be.

    Args:
        fields: The object as read.
        where: The file and the row.
    """

    __slots__ = ("_fields", "where")

    def __init__(self, fields: object, where: str) -> None:
        if not isinstance(fields, Mapping):
            raise bad(where, fields, "a JSON object")
        self._fields, self.where = fields, where

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str, kind: type[T]) -> T:
        """Return a field.

        Raises:
            DataCorrupt: It is absent, or of another type.
        """
        value = self._fields.get(name)
        if not isinstance(value, kind) or name not in self._fields:
            raise bad(self.place(name), value if name in self._fields else "no such field", _KINDS[kind])
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        """Return a field, or None where it is absent or null.

        Raises:
            DataCorrupt: It is of another type.
        """
        return None if self._fields.get(name) is None else self.get(name, kind)

    def number(self, name: str) -> float:
        """Return a field that is a number.

        Raises:
            DataCorrupt: It is absent, or something else.
        """
        value = self.get(name, object)
        if not isinstance(value, int | float):
            raise bad(self.place(name), value, "a number")
        return float(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a field that is a list of texts.

        Raises:
            DataCorrupt: It is absent, or something else.
        """
        return texts(self.get(name, list), self.place(name))

    def place(self, name: str) -> str:
        """Say where a field stands, for errors."""
        return f"{self.where}, field {name}"


def texts(value: object, where: str) -> tuple[str, ...]:
    """Return a list of texts as a tuple.

    Raises:
        DataCorrupt: It is something else.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise bad(where, value, "a list of texts")
    return tuple(value)


def iterate_rows(path: Path) -> Iterator[Any]:
    """Yield the values of a JSON list, or of a file with one value a line, holding one at a time.

    Raises:
        DataMissing: There is no such file.
        DataCorrupt: It is no such file.
    """
    with _open(path) as file:
        window = _Window(file, path)
        listed = window.next_sign(_GAPS) == "["
        window.at += listed
        row = 0
        while (sign := window.next_sign(_GAPS + ",")) and not (listed and sign == "]"):
            yield window.value(f"{path}, row {row}")
            row += 1
        if listed and not sign:
            raise bad(f"{path}, row {row}", "the end of the file", "the rest of the list")


def read_object(path: Path) -> dict[str, Any]:
    """Return the content of a file that holds one JSON object.

    Raises:
        DataMissing: There is no such file.
        DataCorrupt: It holds something else.
    """
    try:
        with _open(path) as file:
            value = json.load(file)
    except ValueError as error:
        raise bad(path, str(error), "one JSON object in UTF-8") from error
    if not isinstance(value, dict):
        raise bad(path, f"JSON of type {type(value).__name__}", "one JSON object")
    return value


def _open(path: Path) -> IO[str]:
    try:
        return path.open(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise DataMissing("a WebShop file does not exist", where=path, fix=_GET) from error


class _Window:
    """Hold the part of a file that is being read."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self._file, self._path = file, path
        self._text = ""
        self.at = 0

    def next_sign(self, gaps: str) -> str:
        """Go on to the next character that is none of `gaps`, and return it; nothing at the end of the file."""
        while True:
            while self.at < len(self._text) and self._text[self.at] in gaps:
                self.at += 1
            if self.at < len(self._text) or not self._more():
                return self._text[self.at : self.at + 1]

    def value(self, where: str) -> Any:
        """Return the JSON value that stands here, and go on behind it."""
        while True:
            try:
                value, self.at = _DECODE(self._text, self.at)
            except json.JSONDecodeError as error:
                # Perhaps only the end of what was read so far: a row may be cut anywhere.
                if len(self._text) - self.at > _LARGEST_ROW or not self._more():
                    raise bad(where, str(error), _ITEMS) from error
            else:
                return value

    def _more(self) -> bool:
        try:
            chunk = self._file.read(_CHUNK)
        except UnicodeDecodeError as error:
            raise bad(self._path, f"bytes that are no text: {error}", "UTF-8") from error
        self._text, self.at = self._text[self.at :] + chunk, 0
        return bool(chunk)
