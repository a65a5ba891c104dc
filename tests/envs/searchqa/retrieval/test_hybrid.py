"""Fusion ranks by the sum of reciprocal ranks."""

from collections.abc import Sequence
from typing import ClassVar

import pytest

from agentgym_tok.envs.searchqa.retrieval.hybrid import HybridRetriever
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever, open_retriever
from agentgym_tok.errors import ConfigError


class Listed(BaseRetriever):
    name: ClassVar[str] = "listed"

    def __init__(self, ids: str) -> None:
        super().__init__(ids=ids)
        self.ids = ids
        self.asked: list[int] = []

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.asked.append(k)
        return [[Passage(name, "", name, 9.0) for name in self.ids[:k]] for _ in queries]


def test_a_passage_that_both_find_stands_before_one_that_one_finds() -> None:
    found = HybridRetriever([Listed("xab"), Listed("yba")]).search(["q"], 9)[0]
    assert [passage.id for passage in found] == ["a", "b", "x", "y"]
    scores = [1 / 62 + 1 / 63, 1 / 63 + 1 / 62, 1 / 61, 1 / 61]
    assert [passage.score for passage in found] == pytest.approx(scores)


def test_the_first_retriever_settles_ties_and_every_one_is_asked_for_its_depth() -> None:
    members = [Listed("ab"), Listed("ba")]
    assert [p.id for p in HybridRetriever(members, depth=7).search(["q"], 1)[0]] == ["a"]
    assert [p.id for p in HybridRetriever(members[::-1], depth=7).search(["q"], 8)[0]] == ["b", "a"]
    assert [member.asked for member in members] == [[7, 8], [7, 8]]


def test_closing_it_closes_every_retriever() -> None:
    members = [Listed("a"), Listed("b")]
    HybridRetriever(members).close()
    assert all(member._closed for member in members)


def test_no_retrievers_or_options_without_a_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="no list of retrievers"):
        HybridRetriever([])
    with pytest.raises(ConfigError, match="no list of retrievers"):
        HybridRetriever("bm25")
    with pytest.raises(ConfigError, match="options for no retriever"):
        HybridRetriever([Listed("a")], corpus="x")
    with pytest.raises(ConfigError, match=r"expected: corpus, k1, b"):
        open_retriever("hybrid", retrievers=["bm25"], corpse="x")
