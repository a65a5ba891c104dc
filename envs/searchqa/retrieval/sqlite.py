"""A retriever that needs nothing but Python: SQLite's full-text index (FTS5)."""

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from agentgym_tok.envs.cache import publish
from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus, Progress, Source, as_corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever
from agentgym_tok.envs.searchqa.retrieval.words import words
from agentgym_tok.errors import MissingExtra, WorldError

__all__ = ["SQLiteRetriever"]

_LAYOUT = 1
_FILE = "index.db"
_STEP = 10_000


class SQLiteRetriever(BaseRetriever):
    """Rank passages by FTS5's BM25 (k1 = 1.2, b = 0.75) over Porter's stems.

    The index stands in the corpus' folder; the first retriever of a corpus builds it. Of passages with equal scores
    the one that comes first in the corpus stands first. Made for some ten thousand passages: `bm25` is faster.

    Args:
        corpus: See `as_corpus`.
        progress: Called while the index is built.

    Raises:
        MissingExtra: This Python's SQLite has no FTS5.
        DataMissing: The corpus is not there.
        DataCorrupt: It is no corpus.
    """

    name: ClassVar[str] = "sqlite"

    def __init__(self, corpus: Source, *, progress: Progress | None = None) -> None:
        self.corpus = as_corpus(corpus)
        super().__init__(corpus=self.corpus)
        file = _built(self.corpus, progress)
        self._base = sqlite3.connect(
            f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        self._lock = threading.Lock()

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self._found(query, k) for query in queries]

    def _found(self, query: str, k: int) -> list[Passage]:
        match = " OR ".join(f'"{word}"' for word in dict.fromkeys(words(query)))
        if not match:
            return []
        ask = "SELECT rowid, -rank FROM passages WHERE passages MATCH ? ORDER BY rank, rowid LIMIT ?"
        try:
            with self._lock:
                rows = self._base.execute(ask, (match, k)).fetchall()
        except sqlite3.Error as error:
            raise WorldError("the search failed", where=f"retriever sqlite, {self.corpus.folder}", got=error) from error
        return [self.corpus.passage(number, score) for number, score in rows]

    def close(self) -> None:
        """Close the index."""
        super().close()
        with self._lock:
            self._base.close()


def _built(corpus: Corpus, progress: Progress | None) -> Path:
    name = f"sqlite-{_LAYOUT}"

    def fill(work: Path) -> str:
        _build(corpus, work / _FILE, progress)
        return name

    folder = corpus.folder / name
    return (folder if folder.is_dir() else publish(corpus.folder, fill)) / _FILE


def _build(corpus: Corpus, file: Path, progress: Progress | None) -> None:
    base = sqlite3.connect(file, isolation_level=None)
    try:
        # Contentless: the passages stand in the corpus.
        base.execute("CREATE VIRTUAL TABLE passages USING fts5(words, content='', tokenize='porter unicode61')")
        base.execute("BEGIN")
        for number, passage in enumerate(corpus):
            base.execute(
                "INSERT INTO passages(rowid, words) VALUES (?, ?)", (number, f"{passage.title} {passage.text}")
            )
            if progress and not (number + 1) % _STEP:
                progress(number + 1, len(corpus))
        base.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if "fts5" not in str(error):
            raise
        fix = "use the retriever bm25, or a Python whose SQLite has FTS5"
        raise MissingExtra(
            "this SQLite has no full-text search", where="retriever sqlite", got=error, fix=fix
        ) from error
    finally:
        base.close()
