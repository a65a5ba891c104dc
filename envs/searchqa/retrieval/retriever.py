"""What a retriever promises, and how one is opened by its name."""

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.errors import ConfigError, WorldError
from agentgym_tok.plugins import find_plugin

__all__ = ["RETRIEVERS", "BaseRetriever", "Retriever", "open_retriever", "takes_corpus"]

RETRIEVERS: Mapping[str, tuple[str, str]] = {
    "bm25": ("bm25", "BM25Retriever"),
    "dense": ("dense", "DenseRetriever"),
    "http": ("http", "HTTPRetriever"),
    "hybrid": ("hybrid", "HybridRetriever"),
    "sqlite": ("sqlite", "SQLiteRetriever"),
    "wikipedia": ("wikipedia", "WikipediaRetriever"),
}
"""The retrievers by name: module of this folder, and class."""

_CORPUS_FREE = frozenset({"http", "wikipedia"})


@runtime_checkable
class Retriever(Protocol):
    """Find passages for queries.

    A retriever is safe to use from several threads, and a pickled one opens its corpus or server anew.
    """

    name: ClassVar[str]

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the best passages for each query, best first.

        Equal calls give equal results in equal order, whatever else stands in the batch. Of passages with equal scores
        the one that comes first in the corpus (or in the server's answer) stands first. A query without a word that
        could be searched for finds nothing, and passages that do not fit at all are left out.

        Args:
            queries: Any texts.
            k: The most passages for each query.

        Raises:
            ConfigError: `queries` is no sequence of strings, or `k` is below 1.
            WorldError: The search failed (boundary `world`); never reported as a passage.
        """
        ...

    def close(self) -> None:
        """Free what the retriever holds; closing twice is no mistake."""
        ...


class BaseRetriever(ABC):
    """Do for every retriever what the protocol asks of all alike.

    Args:
        options: What the constructor was called with: a pickled retriever is opened again by them.
    """

    name: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self._options, self._closed = options, False

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the best passages for each query; see `Retriever.search`."""
        if isinstance(queries, str) or not all(isinstance(query, str) for query in queries):
            raise ConfigError("queries must be a sequence of strings", where=self.name, got=_shown(queries))
        if k < 1:
            raise ConfigError("k must be at least 1", where=self.name, got=k)
        if self._closed:
            raise WorldError("the retriever is closed", where=f"retriever {self.name}", fix="open it again")
        asked = [query for query in queries if query and not query.isspace()]
        found = iter(self._search(asked, k) if asked else ())
        return [next(found) if query and not query.isspace() else [] for query in queries]

    @abstractmethod
    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Search for queries of which none is empty."""

    def close(self) -> None:
        """Free what the retriever holds."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self._options

    def __setstate__(self, options: dict[str, Any]) -> None:
        self.__class__.__init__(self, **options)


def _shown(queries: object) -> str:
    text = repr(queries)
    return text if len(text) <= 80 else f"{text[:80]}..."


def open_retriever(name: str, **options: Any) -> Retriever:
    """Open a retriever by its name.

    Args:
        name: One of `RETRIEVERS`, or a plug-in's.
        options: The arguments of its class: `corpus=` for `bm25`, `sqlite` and `dense`, `url=` for `http`,
            `retrievers=` for `hybrid`.

    Raises:
        UnknownName: No retriever has this name.
        ConfigError: An option is missing or unknown, or a plug-in is broken.
        MissingExtra: The retriever's packages are not installed.
    """
    make = _class(name)
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        where, known = f"retriever {name}", ", ".join(signature.parameters)
        raise ConfigError(
            "options that do not fit the retriever", where=where, got=str(error), expected=known
        ) from error
    retriever: Retriever = make(**options)
    if name not in RETRIEVERS and not isinstance(retriever, Retriever):
        broken = find_plugin("retriever", name, RETRIEVERS)
        raise broken.broken(type(retriever).__name__, expected="a Retriever: name, search, close")
    return retriever


def takes_corpus(name: str) -> bool:
    """Tell whether a retriever searches a corpus that it is given; a plug-in does that has `corpus` as an argument.

    Raises:
        UnknownName: No retriever has this name.
        ConfigError: A plug-in is broken.
    """
    if name in RETRIEVERS:
        return name not in _CORPUS_FREE
    return "corpus" in inspect.signature(_class(name)).parameters


def _class(name: str) -> Callable[..., Any]:
    made: Callable[..., Any]
    if name in RETRIEVERS:
        module, kind = RETRIEVERS[name]
        made = getattr(importlib.import_module(f"agentgym_tok.envs.searchqa.retrieval.{module}"), kind)
    else:
        made = find_plugin("retriever", name, RETRIEVERS, where="open_retriever").load()
    return made
