"""A report as markdown, for papers and pull requests."""

from collections.abc import Iterator

from agentgym_tok.evaluate.report.contents import Contents, Section
from agentgym_tok.evaluate.report.heads import PaperTable
from agentgym_tok.evaluate.report.tables import Column, Table, escaped

__all__ = ["report_markdown"]

_LEFT_OUT = frozenset({"examples", "episodes", "distributions"})
"""Sections that nobody prints."""

_LONG = 1000


def report_markdown(contents: Contents) -> str:
    """Return the table of papers and the others that people print; the rest by the names of their files."""
    lines = [f"# {', '.join(escaped(run.name) for run in contents.runs)}", ""]
    for section in contents.sections:
        if section.id not in _LEFT_OUT:
            lines += [f"## {section.title}", "", *_section(section)]
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> Iterator[str]:
    for item in section.pieces:
        if item.kind == "paper":
            yield _paper(item.value)
        elif item.kind == "table":
            yield from _table(item.value)
        elif item.kind == "pairing":
            yield f"### {escaped(item.value.title)}\n"
            yield from (f"- {escaped(line, _LONG)}" for line in item.value.verdicts)
            yield ""
            for table in item.value.tables:
                yield from _table(table)
        elif item.kind in ("figure", "curves"):
            figures = item.value if item.kind == "curves" else (item.value,)
            yield from (f"- {figure.title}: `figures/{figure.name}.csv`" for figure in figures)
            yield ""


def _paper(table: PaperTable) -> str:
    several = len(table.parts) > 1
    heads = [f"{part}: {head}" if several else head for part, heads in table.parts for head in heads]
    rows = [
        (line.run.name, *(cell[0] if cell else "" for cells in line.parts for cell in cells)) for line in table.lines
    ]
    columns = (Column("run", ""), *(Column(head, head, "percent") for head in heads))
    made = Table("paper", "", columns, tuple(rows)).markdown()
    return f"{made}\nIn percent. All: over episodes; Avg: mean over kinds of task.\n"


def _table(table: Table) -> Iterator[str]:
    if table.shut:
        yield f"- {escaped(table.title)}: `tables/{table.name}.csv`\n"
        return
    yield f"**{escaped(table.title)}**\n"
    yield table.markdown()
    if table.note:
        yield f"{escaped(table.note, _LONG)}\n"
