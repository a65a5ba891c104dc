"""The shop's search: Lucene's BM25 over the products, without Lucene."""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.webshop.columns import Columns, Rows
from agentgym_tok.envs.webshop.lookup.analyzer import analyze
from agentgym_tok.envs.webshop.lookup.postings import TermList, length_weights

__all__ = ["MOST_HITS", "Search", "best_first"]

MOST_HITS = 50
"""How many products a search finds at most."""

_KEPT = 1024  # searches
_MANY = 1 << 16  # postings above which it pays to leave some out
_STARTS, _SAMPLE, _BEAM = 3, 1 << 13, 512  # terms, and products with each, whose scores show what can be reached


class _Term(NamedTuple):
    """A term of a search: its weight, where its postings stand, and the most that it adds to any score."""

    weight: float
    postings: slice
    most: float


class Search:
    """Rank products for words, as Anserini's BM25 with k1 = 0.9 and b = 0.4 does.

    Args:
        columns: The index that `PostingsWriter` made.
        ranks_N: int [products], where each product stands in the order of the asins; the lower one wins a tie.
    """

    def __init__(self, columns: Columns, ranks_N: NDArray[Any]) -> None:
        self._terms = TermList(Rows(columns["terms"], columns["term_ends"]))
        self._starts, self._documents = columns["starts"], columns["documents"]
        self._repeats, self._counts = columns["repeats"], columns["counts"]
        self._peaks, self._norms_N, self._ranks_N = columns["peaks"], columns["norms"], ranks_N
        self._filled, total = columns["totals"].tolist()
        self._length_weights = length_weights(self._filled, total)
        self._found: OrderedDict[str, NDArray[np.int32]] = OrderedDict()

    def find(self, words: str) -> NDArray[np.int32]:
        """Return the best products for words, at most 50, best first; the last searches are remembered."""
        found = self._found.pop(words, None)
        if found is None:
            found = self.rank(words)[0]
        self._found[words] = found
        if len(self._found) > _KEPT:
            self._found.popitem(last=False)
        return found

    def rank(self, words: str) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the best products for words and their scores, best first.

        What cannot be among the best is left out early: terms in the order of what they can add, rarest first, are
        scored wherever they stand only until all others together cannot lift a product among the best any more (the
        MaxScore algorithm of Turtle and Flood, 1995). No score changes by it.

        Args:
            words: Any text; terms that it repeats count as often.
        """
        terms = sorted(self._look_up(words), key=lambda term: term.most, reverse=True)
        rest = [*accumulate((term.most for term in reversed(terms)), initial=0.0)][::-1]
        # What is left out is judged in single precision, and what is nearly as good is kept for the exact scores.
        slack = 1e-4 + 1e-5 * rest[0]
        many = sum(term.postings.stop - term.postings.start for term in terms) > _MANY
        least = max(self._estimate(terms, first) for first in terms[:_STARTS]) - slack if many else 0.0
        scored = next((place for place, more in enumerate(rest) if more < least), len(terms))
        scores_N = np.zeros(len(self._norms_N), np.float32)
        for term in terms[:scored]:
            scores_N[self._documents[term.postings]] += np.float32(term.weight) * self._counts[term.postings]
        hits = np.flatnonzero(scores_N > max(least - rest[scored], 0.0)).astype(np.int32)
        scores = scores_N[hits]
        for place in range(scored, len(terms)):
            scores += self._add(terms[place], hits)
            if len(hits) < _SAMPLE:
                least = max(least, _fiftieth(scores) - slack)
            kept = scores > least - rest[place + 1]
            hits, scores = hits[kept], scores[kept]
        return self._best(terms, hits[scores > _fiftieth(scores) - slack])

    def _look_up(self, words: str) -> Iterator[_Term]:
        for text, times in Counter(analyze(words)).items():
            place = self._terms.find(text)
            if place is not None:
                postings = slice(int(self._starts[place]), int(self._starts[place + 1]))
                known = postings.stop - postings.start
                weight = times * log(1 + (self._filled - known + 0.5) / (known + 0.5))
                yield _Term(weight, postings, weight * float(self._peaks[place]))

    def _estimate(self, terms: Sequence[_Term], first: _Term) -> float:
        """Return a score that fifty products reach, found in a sample of those with a certain term."""
        hits = self._documents[first.postings][:_SAMPLE]
        scores = np.zeros(len(hits), np.float32)
        for term in terms:
            scores += self._add(term, hits)
            if len(hits) > _BEAM:
                kept = np.flatnonzero(scores >= np.partition(scores, -_BEAM)[-_BEAM])[: 2 * _BEAM]
                hits, scores = hits[kept], scores[kept]
        return _fiftieth(scores)

    def _find(self, term: _Term, hits: NDArray[np.int32]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Say which products, given in ascending order, hold a term, and at which of its postings."""
        documents = self._documents[term.postings]
        places = np.searchsorted(documents, hits)
        places[places == len(documents)] = 0
        held = documents[places] == hits
        return held, places[held] + term.postings.start

    def _add(self, term: _Term, hits: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return what a term adds to the scores of certain products."""
        held, places = self._find(term, hits)
        scores = np.zeros(len(hits), np.float32)
        scores[held] = np.float32(term.weight) * self._counts[places]
        return scores

    def _best(self, terms: Sequence[_Term], hits: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the best of a few products, by exact scores."""
        scores = np.zeros(len(hits))
        length_weights = self._length_weights[self._norms_N[hits]]
        for term in terms:
            held, places = self._find(term, hits)
            repeats = self._repeats[places]
            scores[held] += term.weight * repeats / (repeats + length_weights[held])
        order = best_first(scores, self._ranks_N[hits])[:MOST_HITS]
        return hits[order], scores[order]


def best_first(scores: NDArray[np.float64], ranks: NDArray[Any]) -> NDArray[np.intp]:
    """Return the order of hits: by score, and what Lucene's single precision cannot tell apart by asin.

    Args:
        scores: float64 [hits].
        ranks: int [hits], the place of each in the order of the asins.
    """
    return np.lexsort((ranks, -np.rint(scores * 1e5)))


def _fiftieth(scores: NDArray[np.float32]) -> float:
    """Return the score of the last hit, or 0 where there are fewer."""
    return float(np.partition(scores, -MOST_HITS)[-MOST_HITS]) if len(scores) > MOST_HITS else 0.0
