"""One source of the format: what files hold, what the page says, what the code writes."""

import sqlite3
from pathlib import Path
from typing import Any, get_args

from agentgym_tok.trace import EdgeKind, MaskReason, Turn
from agentgym_tok.trace.encoding import head_cells, turn_cells
from agentgym_tok.trace.records import Boundary, Status
from agentgym_tok.trace.schema import APPLICATION_ID, FORMAT, HEAD, TABLES, TURN, ddl, sql

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "trace.md"


def test_the_page_holds_the_schema_that_the_code_renders() -> None:
    assert f"```sql\n{sql()}```" in PAGE.read_text(encoding="utf-8")


def test_the_page_names_the_format_and_every_word_that_cells_hold() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"Format {FORMAT[0]}.{FORMAT[1]}" in page
    assert str(APPLICATION_ID) in page
    for words in (EdgeKind, MaskReason, Boundary, Status):
        assert not [word for word in get_args(words) if f"`{word}`" not in page]


def test_a_shard_holds_the_schema_and_its_version(make: Any, tmp_path: Path) -> None:
    make.run(tmp_path)
    connection = sqlite3.connect(tmp_path / "shards" / "main.sqlite")
    try:
        stored = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
        assert stored == ddl()
        assert connection.execute("PRAGMA user_version").fetchone() == (100 * FORMAT[0] + FORMAT[1],)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    finally:
        connection.close()


def test_cells_stand_in_the_order_of_the_schema(make: Any) -> None:
    first: Turn = make.rich_turns("e")[0]
    cells = dict(zip(TURN, turn_cells(first, b"e", b"t"), strict=True))
    assert (cells["turn"], cells["edge_place"], cells["reward"], cells["seed"]) == (0, None, 0.1, 2**62 + 1)
    assert (cells["valid_action"], cells["started"], cells["ended"]) == (0, 1.5, 2.25)
    assert (cells["evidence"], cells["texts"]) == (b"e", b"t")
    head = dict(zip(HEAD, head_cells(make.head("e", role="judge", seed=7)), strict=True))
    assert (head["name"], head["role"], head["seed"], head["created"]) == ("e", "judge", 7, 1.0)


def test_every_column_is_explained() -> None:
    assert all(column.doc for table in TABLES for column in table.columns)
