"""Several retrievers as one, by reciprocal rank fusion."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever, Retriever, open_retriever
from agentgym_tok.errors import ConfigError

__all__ = ["HybridRetriever"]

_RANK_OFFSET = 60


class HybridRetriever(BaseRetriever):
    """Rank passages by the sum of 1 / (60 + rank) over several retrievers of the same corpus.

    Passages are the same where their ids are. Of passages with equal sums the one that the first retriever ranks higher
    stands first, then the second's.

    Source: Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods", 2009.

    Args:
        retrievers: Open retrievers, which this one closes, or names to open with the further options.
        depth: How many passages each retriever is asked for; `k` where that is more.
        options: For the retrievers that are given by name.

    Raises:
        ConfigError: There are none, or options are left over.
    """

    name: ClassVar[str] = "hybrid"

    def __init__(self, retrievers: Sequence[str | Retriever] = ("bm25",), *, depth: int = 100, **options: Any) -> None:
        if not retrievers or isinstance(retrievers, str):
            raise ConfigError("no list of retrievers", where="retriever hybrid", got=repr(retrievers))
        if options and not any(isinstance(member, str) for member in retrievers):
            raise ConfigError("options for no retriever", where="retriever hybrid", got=", ".join(options))
        self._members: list[Retriever] = [
            open_retriever(member, **options) if isinstance(member, str) else member for member in retrievers
        ]
        self._depth = depth
        super().__init__(retrievers=self._members, depth=depth)

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        lists = [member.search(queries, max(k, self._depth)) for member in self._members]
        return [_fused(found, k) for found in zip(*lists, strict=True)]

    def close(self) -> None:
        """Close every retriever."""
        super().close()
        for member in self._members:
            member.close()


def _fused(lists: Sequence[list[Passage]], k: int) -> list[Passage]:
    passages: dict[str, Passage] = {}
    scores: dict[str, float] = {}
    for found in lists:
        for rank, passage in enumerate(found, 1):
            passages.setdefault(passage.id, passage)
            scores[passage.id] = scores.get(passage.id, 0.0) + 1 / (_RANK_OFFSET + rank)
    best = sorted(scores, key=lambda name: -scores[name])[:k]
    return [replace(passages[name], score=scores[name]) for name in best]
