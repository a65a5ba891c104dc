"""A stored corpus gives back what went in, appears whole or not at all, and a damaged one is refused."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.envs.searchqa.retrieval import corpus as corpus_module
from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus, as_corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.errors import DataCorrupt, DataMissing

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8))
@settings(max_examples=30)
def test_passages_come_back_unchanged(tmp_path_factory: pytest.TempPathFactory, fields: list[tuple[str, str]]) -> None:
    passages = [Passage(str(number), title, text) for number, (title, text) in enumerate(fields)]
    corpus = Corpus.store(passages, cache=tmp_path_factory.mktemp("c"))
    assert list(corpus) == passages
    assert corpus[-1] == passages[-1]
    assert corpus[1:] == passages[1:]
    assert len(corpus) == len(passages)


def test_equal_passages_are_stored_once_and_others_elsewhere(cache: Path) -> None:
    passages = [Passage("1", "ab", "c"), Passage("2", "d", "e")]
    one, two = Corpus.store(passages), Corpus.store(iter(passages))
    other = Corpus.store([Passage("1", "a", "bc"), passages[1]])
    assert one.folder == two.folder != other.folder
    assert {path.name for path in cache.iterdir()} == {one.folder.name, other.folder.name}


def test_a_pickled_corpus_is_opened_again(corpus: Corpus) -> None:
    blob = pickle.dumps(corpus)
    assert len(blob) < 500
    assert list(pickle.loads(blob)) == list(corpus)


def test_files_are_read_once_until_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"id": 1, "contents": "one"}\n', encoding="utf-8")
    assert as_corpus(file)[0].text == "one"
    monkeypatch.setattr(corpus_module, "read_passages", lambda files: pytest.fail(f"read again: {files}"))
    assert as_corpus([str(file)])[0].text == "one"
    monkeypatch.undo()
    monkeypatch.setenv("AGENTGYM_TOK_CACHE", str(tmp_path / "cache"))
    file.write_text('{"id": 1, "contents": "two"}\n', encoding="utf-8")
    assert as_corpus(file)[0].text == "two"


def test_a_build_that_fails_leaves_nothing(cache: Path) -> None:
    def broken() -> Iterator[Passage]:
        yield Passage("1", "", "x")
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="broke"):
        Corpus.store(broken())
    assert list(cache.iterdir()) == []


def test_two_passages_with_one_id_are_refused() -> None:
    passages = [Passage(name, "", "x") for name in ("a", "b", "c", "b")]
    with pytest.raises(DataCorrupt, match=r"passages 1 and 3; got: 'b'"):
        Corpus.store(passages)


def test_hashes_that_meet_are_no_equal_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "hash", lambda _: 7, raising=False)
    assert len(Corpus.store([Passage("a", "", "x"), Passage("b", "", "x")])) == 2


def test_a_corpus_without_passages_is_refused() -> None:
    with pytest.raises(DataCorrupt, match="no passages"):
        Corpus.store([])


def test_a_damaged_corpus_is_refused() -> None:
    folder = Corpus.store([Passage("1", "title", "text")]).folder
    text = (folder / "text.bin").read_bytes()
    (folder / "text.bin").write_bytes(text[:-1])
    with pytest.raises(DataCorrupt, match="made again"):
        Corpus(folder)
    (folder / "text.bin").write_bytes(text)
    assert Corpus(folder)[0].text == "text"
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps(about | {"layout": 0}))
    with pytest.raises(DataCorrupt, match="layout"):
        Corpus(folder)
    (folder / "ends.npy").write_bytes(b"")
    with pytest.raises(DataCorrupt):
        Corpus(folder)
    (folder / "about.json").unlink()
    with pytest.raises(DataMissing):
        Corpus(folder)


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_STEP", 2)
    told: list[tuple[int, int | None]] = []
    Corpus.store([Passage(str(n), "", "x") for n in range(5)], progress=lambda *done: told.append(done))
    assert told == [(2, None), (4, None)]
