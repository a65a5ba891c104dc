"""Items of a markdown list, read from anybody's files and written so that they read back equal."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Item", "read_items", "write_items"]

_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_ITEM = re.compile(r"(?:\d+[.)]|[-*+])\s+(.*)")
# `**Title**: text`, or `**Title:** text`; a backslash keeps the next sign.
_BOLD = re.compile(r"\*\*((?:\\.|[^*\\])*?):?\*\*:?(?:\s+|$)(.*)", re.DOTALL)
_TITLE = re.compile(r"([^:]{1,80}):\s+(.*)", re.DOTALL)
_LABEL = re.compile(r"(When|Why):\s+(.*)")
_NOTE = re.compile(r"<!--\s*(.*?)\s*-->")


@dataclass(frozen=True, slots=True)
class Item:
    """Hold one item.

    Args:
        title: What stands before its text; empty where nothing does.
        text: Its text, in one line.
        labels: What stands behind `When:` and `Why:` in lines of their own.
        note: The JSON object of a comment in it.
    """

    title: str
    text: str
    labels: Mapping[str, str] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)


def read_items(text: str) -> list[Item]:
    """Return the items of all lists of a file, and its other paragraphs as items without a title."""
    blocks: list[list[str]] = []
    inside = False  # a line that follows belongs to the last block
    for line in text.split("\n"):
        item = _ITEM.match(line)
        if item:
            blocks.append([item[1]])
        elif _HEADING.match(line) or not line.strip():
            inside = False
            continue
        elif blocks and (inside or line.startswith("  ")):
            blocks[-1].append(line.strip())
        else:
            blocks.append(["", line.strip()])
        inside = True
    return [item for item in map(_item, blocks) if item is not None]


def write_items(heading: str, items: Iterable[Item]) -> str:
    """Return a file with a heading and a numbered list; `read_items` gives the items back.

    Args:
        heading: A few words.
        items: Texts of one line each, with something to say.
    """
    lines = [f"# {heading}", ""]
    for number, item in enumerate(items, 1):
        title = re.sub(r"([\\*:])", r"\\\1", item.title)
        lines.append(f"{number}. **{title}**: {item.text}")
        lines += [f"   {label}: {text}" for label, text in item.labels.items()]
        if item.note:
            note = json.dumps(item.note, ensure_ascii=False).replace(">", "\\u003e")
            lines.append(f"   <!-- {note} -->")
        lines.append("")
    return "\n".join(lines)


def _item(lines: list[str]) -> Item | None:
    """Read a block: its first line behind the bullet, which is empty for a paragraph, and the lines below."""
    first, *rest = lines
    labels: dict[str, str] = {}
    note: dict[str, Any] = {}
    words = [first]
    for line in rest:
        comment, label = _NOTE.fullmatch(line), _LABEL.fullmatch(line)
        if comment:
            note |= _object(comment[1])
        elif label:
            labels[label[1]] = label[2]
        else:
            words.append(line)
    text = " ".join(words).strip()
    bold, plain = _BOLD.match(text), _TITLE.match(text)
    if bold:
        return Item(re.sub(r"\\(.)", r"\1", bold[1]), bold[2], labels, note)
    if not text or (not first and text.endswith(":")):  # comments alone, or what introduces a list
        return None
    return Item(plain[1], plain[2], labels, note) if plain and first else Item("", text, labels, note)


def _object(comment: str) -> dict[str, Any]:
    try:
        found = json.loads(comment)
    except (ValueError, RecursionError):
        return {}  # a comment for people
    return found if isinstance(found, dict) else {}
