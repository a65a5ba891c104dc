"""The default retriever: BM25 in this process, from an index that is mapped, not loaded."""

import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import bm25s
import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.cache import publish
from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus, Progress, Source, as_corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever
from agentgym_tok.envs.searchqa.retrieval.words import words
from agentgym_tok.errors import ConfigError, DataCorrupt

__all__ = ["BM25Retriever"]

_LAYOUT = 1
_STEP = 10_000


class BM25Retriever(BaseRetriever):
    """Rank passages by BM25 (bm25s, Lucene's variant) over titles and texts.

    The index stands in the corpus' folder; the first retriever of a corpus builds it.

    Args:
        corpus: See `as_corpus`.
        k1: How much a repeated word counts.
        b: How much long passages are held back, 0 to 1.
        progress: Called while the index is built.

    Raises:
        ConfigError: `k1` or `b` is out of range.
        DataMissing: The corpus is not there.
        DataCorrupt: It is no corpus, or holds no words.
    """

    name: ClassVar[str] = "bm25"

    def __init__(self, corpus: Source, *, k1: float = 1.5, b: float = 0.75, progress: Progress | None = None) -> None:
        if k1 < 0 or not 0 <= b <= 1:
            raise ConfigError("BM25 needs k1 >= 0 and 0 <= b <= 1", where="retriever bm25", got=f"k1={k1}, b={b}")
        self.corpus = as_corpus(corpus)
        super().__init__(corpus=self.corpus, k1=k1, b=b)
        self._index = _open_index(self.corpus, k1, b, progress)
        self._starts = self._index.scores["indptr"]
        self._documents = self._index.scores["indices"]

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self._found(query, k) for query in queries]

    def _found(self, query: str, k: int) -> list[Passage]:
        terms = self._index.get_tokens_ids(words(query))
        if not terms:
            return []
        scores_N = self._index.get_scores_from_ids(terms)
        best = _best(scores_N, k, self._floor(scores_N, terms, k))
        return [
            self.corpus.passage(number, score)
            for number, score in zip(best.tolist(), scores_N[best].tolist(), strict=True)
        ]

    def _floor(self, scores_N: NDArray[np.float32], terms: Sequence[int], k: int) -> float:
        """Return a score that the k-th best passage has at least, so that few passages need be compared."""
        starts, ends = self._starts[terms], self._starts[np.add(terms, 1)]
        enough = np.flatnonzero(ends - starts >= k)
        if not len(enough):
            return 0.0
        rarest = enough[np.argmin((ends - starts)[enough])]
        scores = scores_N[self._documents[starts[rarest] : ends[rarest]]]
        return float(np.partition(scores, -k)[-k])


def _best(scores_N: NDArray[np.float32], k: int, floor: float) -> NDArray[np.int64]:
    """Return the numbers of the best passages, best first; the lower number wins a tie, and none has score 0."""
    hits = np.flatnonzero(scores_N >= floor if floor > 0 else scores_N > 0)
    if len(hits) > k:
        least = np.partition(scores_N[hits], -k)[-k]
        hits = hits[scores_N[hits] >= least]
    return hits[np.argsort(-scores_N[hits], kind="stable")[:k]]


def _open_index(corpus: Corpus, k1: float, b: float, progress: Progress | None) -> Any:
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it asks for DEBUG when it is imported
    name = f"bm25-{_LAYOUT}-k1={k1:g}-b={b:g}"
    folder = corpus.folder / name
    if not folder.is_dir():

        def fill(work: Path) -> str:
            _build(corpus, k1, b, progress).save(work, show_progress=False)
            return name

        publish(corpus.folder, fill)
    try:
        index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
    except (OSError, ValueError, KeyError) as error:
        fix = "remove the folder; it is made again"
        raise DataCorrupt("a BM25 index cannot be read", where=folder, got=str(error), fix=fix) from error
    # Still mapped, without what the memmap class adds to every slice.
    index.scores.update({part: np.asarray(index.scores[part]) for part in ("data", "indices", "indptr")})
    return index


def _build(corpus: Corpus, k1: float, b: float, progress: Progress | None) -> Any:
    ids: dict[str, int] = {}
    terms, ends = array("i"), array("q")
    # bm25s goes through the documents three times after this one.
    step = _Steps(progress, 4 * len(corpus))
    for passage in step(corpus):
        terms.extend([ids.setdefault(word, len(ids)) for word in words(f"{passage.title} {passage.text}")])
        ends.append(len(terms))
    if not ids:
        raise DataCorrupt("the corpus holds no words", where=corpus.folder)
    index = bm25s.BM25(k1=k1, b=b, method="lucene")
    index.index(
        bm25s.tokenization.Tokenized(_Documents(terms, ends, step), ids), create_empty_token=False, show_progress=False
    )
    return index


class _Steps:
    """Count what passes through all stages of a build."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, things: Any) -> Iterator[Any]:
        for thing in things:
            yield thing
            self._done += 1
            if self._progress and not self._done % _STEP:
                self._progress(self._done, self._total)


class _Documents:
    """Hand bm25s the documents one at a time, so that a million lists never stand in memory."""

    def __init__(self, terms: "array[int]", ends: "array[int]", step: Callable[[Any], Iterator[Any]]) -> None:
        self._terms, self._ends, self._step = terms, ends, step

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[list[int]]:
        starts = [0, *self._ends[:-1]]
        return self._step(self._terms[start:end].tolist() for start, end in zip(starts, self._ends, strict=True))
