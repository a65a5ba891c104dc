import json
from pathlib import Path

import numpy as np
import pytest

from agentgym_tok.envs.cache import new_folder
from agentgym_tok.envs.webshop.columns import Rows, load_columns, save_columns
from agentgym_tok.errors import DataCorrupt, DataMissing


def test_rows_stand_end_to_end() -> None:
    rows = Rows(np.frombuffer(b"abcde", np.uint8), np.array([2, 2, 5]))
    assert [rows[index] for index in range(3)] == [b"ab", b"", b"cde"]
    for index in (-1, 3):
        with pytest.raises(IndexError):
            rows[index]


def test_columns_come_back_mapped_and_read_only(tmp_path: Path) -> None:
    save_columns(tmp_path, {"numbers": np.arange(3), "names": np.array(["a", "bc"])}, {"what": "test"})
    (tmp_path / "rows.bin").write_bytes(b"abc")
    (tmp_path / "empty.bin").touch()
    columns, about = load_columns(tmp_path)
    assert about == {"what": "test"}
    assert {name: column.tolist() for name, column in columns.items()} == {
        "numbers": [0, 1, 2],
        "names": ["a", "bc"],
        "rows": [97, 98, 99],
        "empty": [],
    }
    assert isinstance(columns["numbers"].base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        columns["rows"][0] = 1


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "data"

    def fail() -> None:
        with new_folder(target) as work:
            (work / "half").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(target.parent.iterdir()) == []
    with new_folder(target) as work:
        (work / "first").touch()
        assert not target.exists()
        with new_folder(target) as other:
            (other / "second").touch()
    assert [path.name for path in target.parent.rglob("*")] == ["data", "second"]


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="prepare webshop"):
        load_columns(tmp_path)
    save_columns(tmp_path, {"numbers": np.arange(30)}, {})
    for name, content in (("numbers.npy", b"x"), ("numbers.npy", b""), ("about.json", b"{")):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataCorrupt, match=str(tmp_path)):
            load_columns(tmp_path)
        (tmp_path / name).write_bytes(before)
    assert json.loads((tmp_path / "about.json").read_text()) == {}
