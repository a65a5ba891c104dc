import hashlib
import os
from pathlib import Path

import pytest

from agentgym_tok.envs.webshop.digests import file_digest
from agentgym_tok.errors import DataMissing


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def age(path: Path, seconds: int = 100) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - seconds * 10**9))


def test_an_old_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "items.json"
    file.write_bytes(b"[]")
    age(file)
    assert file_digest(file, tmp_path / "cache") == sha256(b"[]")
    monkeypatch.setattr("hashlib.file_digest", None)
    assert file_digest(file, tmp_path / "cache") == sha256(b"[]")


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    file, copy = tmp_path / "items.json", tmp_path / "copy.json"
    for content in (b"[1]", b"[2]"):
        file.write_bytes(content)
        age(file)
        assert file_digest(file, tmp_path / "cache") == sha256(content)
    copy.write_bytes(b"[3]")
    assert file_digest(copy, tmp_path / "cache") == sha256(b"[3]")


def test_a_file_that_changed_just_now_is_not_remembered(tmp_path: Path) -> None:
    file = tmp_path / "items.json"
    file.write_bytes(b"[]")
    file_digest(file, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b"{}"])
def test_a_broken_note_is_no_note(tmp_path: Path, note: bytes) -> None:
    file = tmp_path / "items.json"
    file.write_bytes(b"[]")
    age(file)
    file_digest(file, tmp_path / "cache")
    (path,) = (tmp_path / "cache" / "digests").iterdir()
    path.write_bytes(note)
    assert file_digest(file, tmp_path / "cache") == sha256(b"[]")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"none\.json"):
        file_digest(tmp_path / "none.json", tmp_path)
