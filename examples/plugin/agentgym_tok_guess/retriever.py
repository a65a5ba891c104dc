"""A retriever for Search-QA: passages whose titles share words with the query."""

import re
from collections.abc import Sequence
from typing import ClassVar

from agentgym_tok.envs.searchqa.retrieval.corpus import Source, as_corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever

__all__ = ["TitleRetriever"]


class TitleRetriever(BaseRetriever):
    """Find passages by the words of their titles.

    Args:
        corpus: The passages, or the file or folder that holds them.
    """

    name: ClassVar[str] = "titles"

    def __init__(self, corpus: Source) -> None:
        super().__init__(corpus=corpus)
        self._passages = list(as_corpus(corpus))
        self._words = [_words(passage.title) for passage in self._passages]

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self._best(_words(query), k) for query in queries]

    def _best(self, asked: frozenset[str], k: int) -> list[Passage]:
        shared = {place: len(asked & words) for place, words in enumerate(self._words) if asked & words}
        best = sorted(shared, key=lambda place: (-shared[place], place))[:k]
        return [self._passages[place] for place in best]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))
