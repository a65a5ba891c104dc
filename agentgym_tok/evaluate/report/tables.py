"""Tables, before anybody decides how they look: as HTML, as CSV with all digits, as markdown."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentgym_tok.evaluate.report.text import number, one_line, percent, probability, signed, visible

__all__ = ["Cell", "Column", "Interval", "Kind", "Link", "Table", "escaped", "shown"]

Kind: TypeAlias = Literal["text", "number", "tenth", "percent", "change", "p"]
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Link:
    """Name something that stands in another file.

    Args:
        text: What is read.
        href: Where it stands, seen from the report; empty where it does not.
        value: In CSV; the text without it.
    """

    text: str
    href: str = ""
    value: str = ""


Cell: TypeAlias = str | int | float | Interval | Link | None


@dataclass(frozen=True, slots=True)
class Column:
    """Say what stands in a column.

    Args:
        name: In CSV.
        heading: For people.
        kind: What its values are, and with that how they look: a `percent` is a share from 0 to 1, a `tenth` has one
            decimal, a `change` its sign.
    """

    name: str
    heading: str
    kind: Kind = "text"

    @property
    def right(self) -> bool:
        """Whether its values are numbers, which stand at the right."""
        return self.kind != "text"


@dataclass(frozen=True, slots=True)
class Table:
    """Hold a table.

    Args:
        name: Of its file.
        title: Above it.
        columns: What stands where; the first one names the rows.
        rows: A value for each column.
        note: Below it.
        strong: Rows that sum up others.
        shut: Whether people must open it: it is long, or for few.
        most: Rows that a page shows; the file has all.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    strong: frozenset[int] = frozenset()
    shut: bool = False
    most: int = 200

    def csv(self) -> str:
        """Return it as CSV: shares from 0 to 1, intervals in two columns, no number rounded."""
        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\n")
        wide = [any(isinstance(row[place], tuple) for row in self.rows) for place in range(len(self.columns))]
        heads = zip(self.columns, wide, strict=True)
        writer.writerow([name for column, two in heads for name in _names(column, two=two)])
        for row in self.rows:
            writer.writerow([value for cell, two in zip(row, wide, strict=True) for value in _values(cell, two=two)])
        return made.getvalue()

    def markdown(self) -> str:
        """Return it as a markdown table, without its title."""
        lines = [
            [escaped(column.heading) for column in self.columns],
            ["---:" if column.right else "---" for column in self.columns],
            *([escaped(text) for text in self.texts(row)] for row in self.rows[: self.most]),
        ]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

    def texts(self, row: Sequence[Cell]) -> Iterator[str]:
        """Yield what people read in a row."""
        yield from (shown(cell, column.kind) for cell, column in zip(row, self.columns, strict=True))


def shown(cell: Cell, kind: Kind) -> str:
    """Return what people read of a value."""
    if cell is None:
        return ""
    if isinstance(cell, Link):
        return cell.text
    if isinstance(cell, str):
        return cell
    if isinstance(cell, tuple):
        return f"{shown(cell[0], kind)} to {shown(cell[1], kind)}"
    if kind == "percent":
        return percent(cell)
    if kind == "change":
        return signed(cell)
    if kind == "tenth":
        return f"{cell:,.1f}"
    return probability(cell) if kind == "p" else number(cell)


def _names(column: Column, *, two: bool) -> list[str]:
    return [f"{column.name}_low", f"{column.name}_high"] if two else [column.name]


def _values(cell: Cell, *, two: bool) -> list[str | int | float]:
    if isinstance(cell, tuple):
        return [*cell]
    text = cell.value or cell.text if isinstance(cell, Link) else "" if cell is None else cell
    if isinstance(text, str):
        text = _harmless(visible(text))
    return [text, ""] if two else [text]


def _harmless(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@"} else text


def escaped(text: str, most: int = 200) -> str:
    """Return a text on one line that is nothing but text in markdown, in a cell of a table too."""
    line = one_line(visible(text), most)
    for sign in "\\`*_[]<>|":
        line = line.replace(sign, f"\\{sign}")
    return line
