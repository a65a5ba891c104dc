"""Dense retrieval puts E5's prefixes before texts, normalises, and ranks by the inner product."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus
from agentgym_tok.envs.searchqa.retrieval.dense import DenseRetriever
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.errors import DataCorrupt, DataMissing, WorldError

faiss = pytest.importorskip("faiss")

PASSAGES = [Passage("a", "A", "x"), Passage("b", "B", "y"), Passage("c", "C", "y"), Passage("d", "D", "xy")]
SEEN: list[str] = []


class Letters:
    """Count x and y, and make longer texts longer vectors."""

    name = "letters"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        SEEN.extend(texts)
        counts = [[text.rpartition("\n")[2].count(letter) for letter in "xy"] for text in texts]
        return np.array(counts, np.float32) * 7


class Broken:
    name = "broken"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.full((len(texts), 2), np.nan, np.float32)


@pytest.fixture
def small(tmp_path: Path) -> Corpus:
    SEEN.clear()
    return Corpus.store(PASSAGES, cache=tmp_path)


def test_prefixes_norms_and_ties(small: Corpus) -> None:
    retriever = DenseRetriever(small, encoder=Letters())
    found = retriever.search(["\ny", ""], 3)
    assert SEEN == ['passage: "A"\nx', 'passage: "B"\ny', 'passage: "C"\ny', 'passage: "D"\nxy', "query: \ny"]
    assert [passage.id for passage in found[0]] == ["b", "c", "d"]
    assert [passage.score for passage in found[0]] == pytest.approx([1, 1, 0.5**0.5])
    assert found[1] == []


def test_the_index_is_built_once_and_a_pickled_retriever_opens_it(small: Corpus) -> None:
    DenseRetriever(small, encoder=Letters())
    SEEN.clear()
    again = pickle.loads(pickle.dumps(DenseRetriever(small, encoder=Letters())))
    assert SEEN == []
    assert len(again.search(["\nx"], 9)[0]) == 4
    DenseRetriever(small, encoder=Letters(), passage_prefix="")
    assert len(SEEN) == 1 + len(PASSAGES)


def test_a_given_index_must_be_there_and_fit(small: Corpus, tmp_path: Path) -> None:
    with pytest.raises(DataMissing):
        DenseRetriever(small, encoder=Letters(), index=tmp_path / "none.index")
    file = tmp_path / "e5_Flat.index"
    file.write_bytes(b"no index")
    with pytest.raises(DataCorrupt, match="not a faiss index"):
        DenseRetriever(small, encoder=Letters(), index=file)
    index = faiss.IndexFlatIP(2)
    index.add(np.eye(2, dtype=np.float32))
    faiss.write_index(index, str(file))
    with pytest.raises(DataCorrupt, match=r"got: 2; expected: 4 passages"):
        DenseRetriever(small, encoder=Letters(), index=file)


def test_an_encoder_that_fails_ends_at_the_world(small: Corpus) -> None:
    with pytest.raises(WorldError, match="encoder failed"):
        DenseRetriever(small, encoder=Broken())


@pytest.mark.deep
def test_a_real_sentence_transformers_model_finds_meanings(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "passage", ":", "cat", "dog", "sea", '"']
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    folder = tmp_path / "model"
    BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=64, **sizes)
    BertModel(config).save_pretrained(folder)
    corpus = Corpus.store([Passage(word, "", word) for word in ("cat", "dog", "sea")], cache=tmp_path)
    retriever = DenseRetriever(corpus, encoder=str(folder), query_prefix="passage: ")
    found = retriever.search(["dog", "sea"], 1)
    assert [[passage.id for passage in passages] for passages in found] == [["dog"], ["sea"]]
    assert found[0][0].score == pytest.approx(1, abs=1e-4)
