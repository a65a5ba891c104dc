"""Read the files that corpora come in."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym_tok.envs.searchqa.retrieval.passage import Passage, split_contents
from agentgym_tok.errors import DataCorrupt, DataMissing

__all__ = ["read_passages"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_EXPECTED = '{"id", "contents"}, or {"title", "text"} with or without "id"'


def read_passages(files: Iterable[str | Path]) -> Iterator[Passage]:
    """Read passages one after the other; JSONL files never stand in memory as a whole.

    A file whose name ends in `.json` holds one list of rows, or `{title: text or sentences}` (HippoRAG's corpora).
    Any other holds one row in each line (Search-R1 and FlashRAG). A passage without an id gets its number, counted
    from 0 through all files. Lone surrogates become U+FFFD.

    Args:
        files: Paths, in the order in which the passages shall stand.

    Raises:
        DataMissing: A file is not there.
        DataCorrupt: A row is no passage; the error names file and row.
    """
    number = 0
    for file in map(Path, files):
        for place, row in _rows(file):
            yield _passage(row, number, place)
            number += 1


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        yield from _listed(file) if file.suffix == ".json" else _lines(file)
    except FileNotFoundError as error:
        raise DataMissing("the corpus is not there", where=file, fix="check the path") from error
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise DataCorrupt("the corpus is no text file", where=file, got=str(error), expected="JSON or JSONL") from error


def _lines(file: Path) -> Iterator[tuple[str, Any]]:
    with file.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if not line.isspace():
                yield (place := f"{file}, line {number}"), _parsed(line, place)


def _listed(file: Path) -> Iterator[tuple[str, Any]]:
    whole = _parsed(file.read_text(encoding="utf-8"), str(file))
    if isinstance(whole, dict):
        for title, text in whole.items():
            words = "".join(text) if isinstance(text, list) and all(isinstance(part, str) for part in text) else text
            yield f"{file}, row {title!r}", {"title": title, "text": words}
    elif isinstance(whole, list):
        yield from ((f"{file}, row {number}", row) for number, row in enumerate(whole))
    else:
        raise DataCorrupt("not a corpus", where=file, got=type(whole).__name__, expected="a list or an object")


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataCorrupt("not JSON", where=place, got=str(error), expected=_EXPECTED) from error


def _passage(row: Any, number: int, place: str) -> Passage:
    if not isinstance(row, dict):
        raise DataCorrupt("not a passage", where=place, got=type(row).__name__, expected=_EXPECTED)
    name = row.get("id", number)
    if isinstance(row.get("contents"), str):
        title, text = split_contents(row["contents"])
    elif isinstance(row.get("title"), str) and isinstance(row.get("text"), str):
        title, text = row["title"], row["text"]
    else:
        raise DataCorrupt("not a passage", where=place, got=_kinds(row), expected=_EXPECTED)
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise DataCorrupt("an id that is no string or number", where=place, got=_kinds(row), expected=_EXPECTED)
    return Passage(_clean(str(name)), _clean(title), _clean(text))


def _kinds(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {type(value).__name__}" for key, value in list(row.items())[:8]) or "nothing"


def _clean(text: str) -> str:
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
