"""Corpora are read in the forms that they are published in, and a wrong row is named."""

import json
from pathlib import Path

import pytest

from agentgym_tok.envs.searchqa.retrieval.documents import read_passages
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.errors import DataCorrupt, DataMissing


def written(file: Path, *rows: object) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def test_jsonl_holds_contents_or_title_and_text(tmp_path: Path) -> None:
    rows = [
        {"id": "7", "contents": '"Ada"\nWrote.'},
        {"id": 8, "title": "Bab", "text": "Built.", "more": 1},
        {"title": "C", "text": ""},
    ]
    expected = [Passage("7", "Ada", "Wrote."), Passage("8", "Bab", "Built."), Passage("2", "C", "")]
    assert list(read_passages([written(tmp_path / "c.jsonl", *rows)])) == expected


def test_json_holds_a_list_or_titles_with_sentences_and_files_are_pooled(tmp_path: Path) -> None:
    one = written(tmp_path / "one.json", [{"title": "A", "text": "1"}])
    two = written(tmp_path / "two.json", {"B": ["2.", " 3."], "C": "4"})
    expected = [Passage("0", "A", "1"), Passage("1", "B", "2. 3."), Passage("2", "C", "4")]
    assert list(read_passages([one, two])) == expected


def test_empty_lines_are_no_rows_and_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('\n{"title": "\\ud800", "text": "\\ud83d\\ude00"}\n\n', encoding="utf-8")
    assert list(read_passages([file])) == [Passage("0", "\ufffd", "\U0001f600")]


@pytest.mark.parametrize(
    ("row", "got"),
    [
        ({"id": 1, "title": "no text"}, "id: int, title: str"),
        ({"id": 1, "contents": None}, "contents: NoneType"),
        ({"id": True, "contents": "x"}, "id: bool"),
        ({"id": [1], "contents": "x"}, "id: list"),
        ([1], "list"),
        ({}, "nothing"),
    ],
)
def test_a_row_that_is_no_passage_is_named(tmp_path: Path, row: object, got: str) -> None:
    file = written(tmp_path / "c.jsonl", {"id": 0, "contents": "fine"}, row)
    with pytest.raises(DataCorrupt, match=r"c\.jsonl, line 2") as caught:
        list(read_passages([file]))
    assert got in str(caught.value)


def test_a_file_that_is_not_there_or_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"none\.jsonl"):
        list(read_passages([tmp_path / "none.jsonl"]))
    (tmp_path / "c.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataCorrupt, match="no text file"):
        list(read_passages([tmp_path / "c.jsonl"]))
    (tmp_path / "d.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(DataCorrupt, match=r"not JSON; where: .*line 1"):
        list(read_passages([tmp_path / "d.jsonl"]))
    with pytest.raises(DataCorrupt, match=r"row 'T'"):
        list(read_passages([written(tmp_path / "e.json", {"T": [1]})]))
    with pytest.raises(DataCorrupt, match="not a corpus"):
        list(read_passages([written(tmp_path / "f.json", "text")]))
