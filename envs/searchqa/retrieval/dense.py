"""A retriever by embeddings, as E5 and Search-R1 publish it (extra `dense`)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.cache import publish
from agentgym_tok.envs.searchqa.retrieval.corpus import Progress, Source, as_corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever
from agentgym_tok.errors import DataCorrupt, DataMissing, MissingExtra, WorldError

__all__ = ["DenseRetriever", "Encoder", "SentenceEncoder"]

_LAYOUT = 1
_FILE = "flat.faiss"
_BATCH = 256
_EXTRA = 'pip install "agentgym-tok[dense]"'


class Encoder(Protocol):
    """Turn texts into vectors; pickled with the retriever.

    Args:
        name: Says which index is this encoder's; letters, digits, `-` and `.`.
    """

    name: str

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [texts, dimensions]; their lengths do not matter."""
        ...


class SentenceEncoder:
    """Encode with a sentence-transformers model; one without pooling settings gets mean pooling, which E5 was made for.

    Args:
        model: Folder or Hugging Face id.
        most_tokens: How much of a text counts.

    Raises:
        MissingExtra: sentence-transformers is not installed.
    """

    def __init__(self, model: str = "intfloat/e5-base-v2", *, most_tokens: int = 256) -> None:
        try:
            from sentence_transformers import SentenceTransformer  # noqa: PLC0415  heavy
        except ImportError as error:
            raise MissingExtra("embeddings need sentence-transformers", where="retriever dense", fix=_EXTRA) from error
        self._model = SentenceTransformer(model)
        self._model.max_seq_length = most_tokens
        self._arguments = (model, most_tokens)
        self.name = f"{Path(model).name}-{most_tokens}"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [texts, dimensions]."""
        return np.asarray(self._model.encode(list(texts), show_progress_bar=False), np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        model, most_tokens = self._arguments
        return _encoder, (model, most_tokens)


def _encoder(model: str, most_tokens: int) -> SentenceEncoder:
    return SentenceEncoder(model, most_tokens=most_tokens)


class DenseRetriever(BaseRetriever):
    """Rank passages by the inner product of normalised embeddings, exactly (a flat faiss index).

    The index stands in the corpus' folder; the first retriever of a corpus builds it. Scores that differ in the last
    digits may change places with the size of the batch.

    Args:
        corpus: See `as_corpus`.
        encoder: The encoder, or the folder or id of a sentence-transformers model.
        query_prefix: Stands before each query, as E5 was trained.
        passage_prefix: Stands before each passage.
        index: A faiss index of these passages in this order, such as Search-R1's `e5_Flat.index`; None builds one.
        progress: Called while the index is built.

    Raises:
        MissingExtra: faiss-cpu or sentence-transformers is not installed.
        DataMissing: The corpus or the index is not there.
        DataCorrupt: The index is of other passages or another encoder.
    """

    name: ClassVar[str] = "dense"

    def __init__(
        self,
        corpus: Source,
        *,
        encoder: Encoder | str = "intfloat/e5-base-v2",
        query_prefix: str = "query: ",
        passage_prefix: str = "passage: ",
        index: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._faiss = _faiss()
        self.corpus = as_corpus(corpus)
        self._encoder = SentenceEncoder(encoder) if isinstance(encoder, str) else encoder
        self._query_prefix = query_prefix
        super().__init__(
            corpus=self.corpus, encoder=encoder, query_prefix=query_prefix, passage_prefix=passage_prefix, index=index
        )
        file = Path(index) if index else self._built(passage_prefix, progress)
        if not file.is_file():
            raise DataMissing("the index is not there", where=file)
        try:
            self._index = self._faiss.read_index(str(file))
        except RuntimeError as error:
            raise DataCorrupt("not a faiss index", where=file, got=str(error).splitlines()[0]) from error
        if self._index.ntotal != len(self.corpus):
            expected = f"{len(self.corpus)} passages"
            raise DataCorrupt("an index of another corpus", where=file, got=self._index.ntotal, expected=expected)

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        vectors_Q_D = self._vectors([f"{self._query_prefix}{query}" for query in queries])
        scores_Q_K, numbers_Q_K = self._index.search(vectors_Q_D, min(k, len(self.corpus)))
        found = []
        for scores, numbers in zip(scores_Q_K.tolist(), numbers_Q_K.tolist(), strict=True):
            ranked = sorted((-score, number) for score, number in zip(scores, numbers, strict=True) if number >= 0)
            found.append([self.corpus.passage(number, -score) for score, number in ranked])
        return found

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.ascontiguousarray(self._encoder.encode(texts), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            got, expected = f"shape {vectors.shape}", f"finite [{len(texts)}, dimensions]"
            raise WorldError("the encoder failed", where="retriever dense", got=got, expected=expected)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        normal: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
        return normal

    def _built(self, prefix: str, progress: Progress | None) -> Path:
        digest = hashlib.blake2b(prefix.encode(), digest_size=4).hexdigest()
        name = f"dense-{_LAYOUT}-{self._encoder.name}-{digest}"

        def fill(work: Path) -> str:
            self._build(work / _FILE, prefix, progress)
            return name

        folder = self.corpus.folder / name
        return (folder if folder.is_dir() else publish(self.corpus.folder, fill)) / _FILE

    def _build(self, file: Path, prefix: str, progress: Progress | None) -> None:
        index: Any = None
        for start in range(0, len(self.corpus), _BATCH):
            passages = self.corpus[start : start + _BATCH]
            vectors_N_D = self._vectors([f"{prefix}{passage.contents}" for passage in passages])
            if index is None:
                index = self._faiss.IndexFlatIP(vectors_N_D.shape[1])
            index.add(vectors_N_D)
            if progress:
                progress(start + len(passages), len(self.corpus))
        self._faiss.write_index(index, str(file))


def _faiss() -> Any:
    try:
        import faiss  # noqa: PLC0415  heavy
    except ImportError as error:
        raise MissingExtra("dense retrieval needs faiss-cpu", where="retriever dense", fix=_EXTRA) from error
    return faiss
