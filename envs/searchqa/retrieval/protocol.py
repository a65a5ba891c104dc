"""What goes over the wire of `/retrieve`, in both forms that are in use.

Source: Search-R1's retrieval server (`queries`, a list) and verl-agent's, SDAR's and SkyRL's (`query`, one string).
"""

from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from agentgym_tok.config import Config
from agentgym_tok.envs.searchqa.retrieval.passage import Passage, split_contents

__all__ = ["MOST_PASSAGES", "MOST_QUERIES", "SearchAnswer", "SearchRequest", "answer"]

MOST_QUERIES = 512
"""How many queries one request may hold."""

MOST_PASSAGES = 1000
"""How many passages a query may ask for."""


class _Foreign(Config):
    """Read what others wrote; what it holds beyond our names is not looked at."""

    model_config = ConfigDict(extra="ignore")


class SearchRequest(_Foreign):
    """Ask for passages.

    Args:
        queries: Search-R1's form.
        query: verl-agent's form.
        topk: Passages for each query; None leaves it to the server.
        return_scores: Whether each document stands beside its score.
    """

    queries: tuple[str, ...] | None = Field(default=None, max_length=MOST_QUERIES)
    query: str | None = None
    topk: int | None = Field(default=None, ge=1, le=MOST_PASSAGES)
    return_scores: bool = False

    @model_validator(mode="after")
    def _one_form(self) -> "SearchRequest":
        if (self.queries is None) == (self.query is None):
            raise ValueError("either `queries` or `query`")
        return self

    @property
    def asked(self) -> tuple[str, ...]:
        """The queries of either form."""
        return self.queries if self.queries is not None else (self.query or "",)


class _Document(_Foreign):
    id: str | int
    contents: str | None = None
    title: str | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _has_words(self) -> "_Document":
        if self.contents is None and self.text is None:
            raise ValueError("neither `contents` nor `text`")
        return self

    def passage(self, score: float) -> Passage:
        if self.contents is not None:
            return Passage(str(self.id), *split_contents(self.contents), score)
        return Passage(str(self.id), self.title or "", self.text or "", score)


class _Hit(_Foreign):
    document: _Document
    score: float


class SearchAnswer(_Foreign):
    """Read an answer: for each query hits, or documents alone where no scores were asked for."""

    result: tuple[tuple[_Hit | _Document, ...], ...]

    def passages(self) -> list[list[Passage]]:
        """Return the passages for each query; without scores the n-th gets 1 / n."""
        return [[_passage(hit, rank) for rank, hit in enumerate(hits, 1)] for hits in self.result]


def _passage(hit: _Hit | _Document, rank: int) -> Passage:
    return hit.document.passage(hit.score) if isinstance(hit, _Hit) else hit.passage(1 / rank)


def answer(found: Sequence[Sequence[Passage]], *, scores: bool) -> dict[str, Any]:
    """Return the JSON object that answers a request."""
    return {"result": [[_row(passage, scores=scores) for passage in passages] for passages in found]}


def _row(passage: Passage, *, scores: bool) -> dict[str, Any]:
    document = {"id": passage.id, "title": passage.title, "text": passage.text, "contents": passage.contents}
    return {"document": document, "score": passage.score} if scores else document
