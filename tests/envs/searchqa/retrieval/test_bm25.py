"""BM25 ranks as the formula says, and finds what the specification asks for on real questions."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.envs.searchqa.retrieval import bm25 as bm25_module
from agentgym_tok.envs.searchqa.retrieval.bm25 import BM25Retriever
from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.words import words
from agentgym_tok.errors import ConfigError, DataCorrupt

TEXTS = st.lists(st.text("abc ", min_size=0, max_size=30), min_size=1, max_size=12)


def reference(texts: list[str], query: str, k1: float, b: float) -> list[tuple[int, float]]:
    """Score every text by Lucene's BM25, one by one; best first, the earlier one first in a tie."""
    counts = [Counter(words(text)) for text in texts]
    mean = sum(count.total() for count in counts) / len(counts)
    scores = [0.0] * len(texts)
    for word in words(query):
        holding = sum(word in count for count in counts)
        weight = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        for number, count in enumerate(counts):
            if count[word]:
                scores[number] += weight * count[word] / (count[word] + k1 * (1 - b + b * count.total() / mean))
    # Where single precision cannot tell, the order of the corpus does.
    return sorted(((n, s) for n, s in enumerate(scores) if s > 0), key=lambda pair: (-round(pair[1], 5), pair[0]))


@given(TEXTS, st.text("abc ", min_size=1, max_size=12), st.integers(1, 6))
@settings(max_examples=60)
def test_scores_and_order_are_those_of_the_formula(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], query: str, k: int
) -> None:
    texts.append("zz ab bc")
    passages = [Passage(str(number), "", text) for number, text in enumerate(texts)]
    retriever = BM25Retriever(Corpus.store(passages, cache=tmp_path_factory.mktemp("c")), k1=1.2, b=0.6)
    expected = reference(texts, query, 1.2, 0.6)
    whole, found = retriever.search([query], len(texts))[0], retriever.search([query], k)[0]
    assert [passage.score for passage in whole] == pytest.approx([score for _, score in expected], abs=1e-5)
    assert sorted(int(passage.id) for passage in whole) == sorted(number for number, _ in expected)
    assert found == whole[:k]


def test_the_first_of_many_equal_passages_wins(tmp_path: Path) -> None:
    passages = [Passage(str(number), "", "same words here") for number in range(500)]
    retriever = BM25Retriever(Corpus.store(passages, cache=tmp_path))
    assert [passage.id for passage in retriever.search(["same words"], 4)[0]] == ["0", "1", "2", "3"]


def test_the_index_is_built_once_for_each_setting(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    BM25Retriever(corpus)
    monkeypatch.setattr(bm25_module, "_build", lambda *_: pytest.fail("built again"))
    BM25Retriever(corpus)
    with pytest.raises(pytest.fail.Exception):
        BM25Retriever(corpus, k1=0.9, b=0.4)


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    corpus = Corpus.store([Passage("1", "", "some words")], cache=tmp_path)
    BM25Retriever(corpus)
    (vocabulary,) = corpus.folder.glob("bm25-*/vocab*")
    vocabulary.write_text("{")
    with pytest.raises(DataCorrupt, match="made again"):
        BM25Retriever(corpus)


def test_what_cannot_be_indexed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataCorrupt, match="no words"):
        BM25Retriever(Corpus.store([Passage("1", "", "the of . !")], cache=tmp_path))
    with pytest.raises(ConfigError, match="k1=-1"):
        BM25Retriever(Corpus.store([Passage("1", "", "word")], cache=tmp_path), k1=-1)


def test_progress_is_told_through_all_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25_module, "_STEP", 10)
    told: list[tuple[int, int | None]] = []
    corpus = Corpus.store([Passage(str(n), "", "word") for n in range(20)], cache=tmp_path)
    BM25Retriever(corpus, progress=lambda *done: told.append(done))
    assert told == [(done, told[-1][0]) for done in range(10, told[-1][0] + 1, 10)]
    assert told[-1][0] == told[-1][1]


def recall(retriever: BM25Retriever, questions: list[tuple[str, set[tuple[str, str]]]]) -> float:
    found = retriever.search([question for question, _ in questions], 5)
    shares = [
        len(gold & {(passage.title, passage.text) for passage in passages}) / len(gold)
        for (_, gold), passages in zip(questions, found, strict=True)
    ]
    return sum(shares) / len(shares)


def test_recall_at_five_on_the_pooled_corpora_is_what_the_specification_asks(shared: Path, tmp_path: Path) -> None:
    folder = shared / "searchqa"
    files = [folder / f"{name}_corpus.json" for name in ("musique_train", "hotpotqa_train", "2wikimultihopqa")]
    retriever = BM25Retriever(Corpus.read(*files, cache=tmp_path))
    musique = [
        (row["question"], {(p["title"], p["paragraph_text"]) for p in row["paragraphs"] if p["is_supporting"]})
        for row in json.loads((folder / "musique_train.json").read_bytes())
    ]
    hotpot = []
    for row in json.loads((folder / "hotpotqa_train.json").read_bytes()):
        titles = {title for title, _ in row["supporting_facts"]}
        hotpot.append((row["question"], {(t, "".join(parts)) for t, parts in row["context"] if t in titles}))
    assert len(retriever.corpus) == 9003
    assert recall(retriever, musique) >= 0.45
    assert recall(retriever, hotpot) >= 0.70
