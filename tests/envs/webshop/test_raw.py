import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.webshop import raw
from agentgym_tok.envs.webshop.raw import Record, iterate_rows, read_object
from agentgym_tok.errors import DataCorrupt, DataMissing

ROWS = st.lists(st.dictionaries(st.text(max_size=3), st.text() | st.integers() | st.none(), max_size=4), max_size=8)


@given(rows=ROWS, chunk=st.integers(1, 40), lines=st.booleans())
def test_rows_come_out_as_they_went_in_wherever_chunks_end(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], chunk: int, lines: bool
) -> None:
    file = tmp_path_factory.mktemp("rows") / "items.json"
    text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows, indent=1, ensure_ascii=False)
    file.write_text(text.replace("\ud800", "?"), encoding="utf-8", errors="replace")
    before, raw._CHUNK = raw._CHUNK, chunk
    try:
        assert list(iterate_rows(file)) == (rows if lines else json.loads(file.read_text(encoding="utf-8")))
    finally:
        raw._CHUNK = before


@pytest.mark.parametrize(
    ("content", "row"),
    [('[{"a": 1}, {"a": ', 1), ('[{"a": 1}', 1), ('[{"a": 1}, {"a" 2}]', 1), ("[{}]"[:1], 0), ("{]", 0), ("lamp", 0)],
)
def test_a_broken_file_is_refused_with_the_row(tmp_path: Path, content: str, row: int) -> None:
    file = tmp_path / "items.json"
    file.write_text(content)
    with pytest.raises(DataCorrupt, match=rf"items\.json, row {row}"):
        list(iterate_rows(file))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "items.json"
    file.write_bytes(b'[{"a": "\xff"}]')
    with pytest.raises(DataCorrupt, match="no text"):
        list(iterate_rows(file))
    with pytest.raises(DataCorrupt, match=r"items\.json"):
        read_object(file)


def test_an_object_is_read_whole_and_nothing_else_is(tmp_path: Path) -> None:
    file = tmp_path / "ins.json"
    file.write_text('{"a": {"b": 1}}')
    assert read_object(file) == {"a": {"b": 1}}
    for wrong in ("[]", "{", ""):
        file.write_text(wrong)
        with pytest.raises(DataCorrupt, match=r"ins\.json"):
            read_object(file)


@pytest.mark.parametrize("read", [read_object, lambda path: list(iterate_rows(path))])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, read: Any) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(DataMissing, match="WebShop file") as caught:
            read(path)
        assert str(path) in str(caught.value)


def test_fields_are_checked_and_named() -> None:
    record = Record(
        {"text": "a", "number": 2, "texts": ["a", "b"], "null": None, "mixed": ["a", 1]}, "items.json, row 3"
    )
    assert (record.get("text", str), record.number("number"), record.texts("texts")) == ("a", 2.0, ("a", "b"))
    assert record.optional("null", str) is record.optional("absent", str) is None
    assert record.optional("text", str) == "a"
    for read, name in (
        (lambda: record.get("absent", str), "absent"),
        (lambda: record.get("null", str), "null"),
        (lambda: record.get("number", str), "number"),
        (lambda: record.optional("number", str), "number"),
        (lambda: record.number("text"), "text"),
        (lambda: record.texts("mixed"), "mixed"),
        (lambda: record.texts("text"), "text"),
    ):
        with pytest.raises(DataCorrupt, match=f"row 3, field {name}"):
            read()
    with pytest.raises(DataCorrupt, match="a JSON object"):
        Record(["a"], "items.json, row 3")
    with pytest.raises(DataCorrupt) as caught:
        Record({"long": "x" * 1000}, "here").number("long")
    assert len(str(caught.value)) < 500
