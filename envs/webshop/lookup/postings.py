"""Build the index of a catalogue: which product holds which term how often, and how long each product is."""

from array import array
from bisect import bisect_left
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.webshop.columns import Columns, Rows
from agentgym_tok.envs.webshop.lookup.analyzer import analyze

__all__ = ["LENGTHS", "PostingsWriter", "TermList", "encode_lengths", "length_weights"]

_K1, _B = 0.9, 0.4
_MOST_REPEATS = np.iinfo(np.uint16).max


def _rounded(length: int) -> int:
    """Return a document length as Lucene remembers it: exact below 24, then with four binary digits."""
    more = length - 24
    shift = max(more.bit_length() - 4, 0) if more > 0 else 0
    return length if more < 0 else 24 + (more >> shift << shift)


def _lengths() -> NDArray[np.int64]:
    lengths = [0]
    while len(lengths) < 256:
        step = 1
        while _rounded(lengths[-1] + step) == lengths[-1]:
            step *= 2
        lengths.append(_rounded(lengths[-1] + step))
    return np.array(lengths, np.int64)


LENGTHS = _lengths()
"""int64 [256]: the length that each of Lucene's one-byte norms stands for (its SmallFloat `byte4ToInt`)."""


def encode_lengths(lengths_N: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the one-byte norms of document lengths (Lucene's SmallFloat `intToByte4`).

    Args:
        lengths_N: int [documents], in terms.
    """
    return (np.searchsorted(LENGTHS, lengths_N, side="right") - 1).astype(np.uint8)


def length_weights(documents: float, terms: float) -> NDArray[np.float64]:
    """Return BM25's weight of each of the 256 lengths; a term that stands there n times counts n / (n + weight).

    Args:
        documents: How many documents hold any term.
        terms: How many terms they hold together.
    """
    average = terms / documents if documents else 1.0
    return np.asarray(_K1 * (1 - _B + _B * LENGTHS / average), np.float64)


class TermList:
    """Find terms in a sorted list of bytes without loading it.

    Args:
        rows: The terms in the order of their bytes.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def find(self, term: str) -> int | None:
        """Return the place of a term, or None."""
        key = _key(term)
        place = bisect_left(self._rows, key)
        return place if place < len(self._rows) and self._rows[place] == key else None


def _key(term: str) -> bytes:
    return term.encode("utf-8", "surrogatepass")


class PostingsWriter:
    """Collect documents and make the columns of their index.

    The columns are `terms` and `term_ends` (the sorted terms), `starts` int64 [terms + 1] (where each term's postings
    begin), `documents` int32, `repeats` uint16 and `counts` float32 (the postings; what BM25 makes of the repeats, but
    for the weight of the term), `peaks` float32 [terms] (the largest count of each), `norms` uint8 [documents], and
    `totals` float64 [2] (documents that hold any term, and terms in all of them).
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._terms = array("i")
        self._repeats = array("H")
        self._distinct = array("i")
        self._lengths = array("i")

    def add(self, document: str) -> None:
        """Add the next document."""
        terms = analyze(document)
        counts = Counter(terms)
        ids = self._ids
        self._terms.extend([ids.setdefault(term, len(ids)) for term in counts])
        self._repeats.extend([min(count, _MOST_REPEATS) for count in counts.values()])
        self._distinct.append(len(counts))
        self._lengths.append(len(terms))

    def columns(self) -> Columns:
        """Return the index of all documents."""
        keys = [_key(term) for term in self._ids]
        by_key = sorted(range(len(keys)), key=keys.__getitem__)
        places = np.empty(len(keys), np.int32)
        places[by_key] = np.arange(len(keys), dtype=np.int32)
        terms = places[np.frombuffer(self._terms, np.int32)] if keys else np.empty(0, np.int32)
        starts = np.concatenate(([0], np.cumsum(np.bincount(terms, minlength=len(keys))))).astype(np.int64)
        order = np.argsort(terms, kind="stable")
        documents = np.repeat(np.arange(len(self._distinct), dtype=np.int32), self._distinct)[order]
        repeats = np.array(self._repeats, np.uint16)[order]
        lengths = np.array(self._lengths, np.int64)
        norms = encode_lengths(lengths)
        totals = np.array([np.count_nonzero(lengths), lengths.sum()], np.float64)
        weights = length_weights(*totals.tolist()).astype(np.float32)
        counts = repeats / (repeats + weights[norms[documents]])
        return {
            "terms": np.frombuffer(b"".join(keys[place] for place in by_key), np.uint8),
            "term_ends": np.cumsum([len(keys[place]) for place in by_key], dtype=np.int64),
            "starts": starts,
            "documents": documents,
            "repeats": repeats,
            "counts": counts,
            "peaks": np.maximum.reduceat(counts, starts[:-1]) if keys else counts,
            "norms": norms,
            "totals": totals,
        }
