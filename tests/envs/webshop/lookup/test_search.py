import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.envs.webshop.columns import Rows
from agentgym_tok.envs.webshop.lookup.analyzer import analyze
from agentgym_tok.envs.webshop.lookup.postings import LENGTHS, PostingsWriter, TermList, encode_lengths
from agentgym_tok.envs.webshop.lookup.search import Search, best_first

WORDS = ("lamp", "desk", "red", "oak", "the", "lamps", "chair")
DOCUMENTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join), min_size=1, max_size=60)


def index(documents: list[str], ranks: list[int] | None = None) -> Search:
    writer = PostingsWriter()
    for document in documents:
        writer.add(document)
    return Search(writer.columns(), np.array(ranks or range(len(documents))))


def lucene(length: int) -> int:
    """Return a length after Lucene's SmallFloat, written out from its definition."""
    if length < 24:
        return length
    shift = max((length - 24).bit_length() - 4, 0)
    return 24 + ((length - 24) >> shift << shift)


def bm25(documents: list[str], query: str) -> dict[int, float]:
    """Return the score of each document that has any, term by term."""
    texts = [analyze(document) for document in documents]
    filled = [text for text in texts if text]
    average = sum(map(len, texts)) / max(len(filled), 1)
    scores: Counter[int] = Counter()
    for term in analyze(query):
        known = sum(term in text for text in texts)
        for number, text in enumerate(texts):
            if term in text:
                tf, norm = text.count(term), 0.9 * (0.6 + 0.4 * lucene(len(text)) / average)
                scores[number] += math.log(1 + (len(filled) - known + 0.5) / (known + 0.5)) * tf / (tf + norm)
    return dict(scores)


@given(DOCUMENTS, st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join))
def test_a_search_ranks_by_bm25_and_then_by_asin(documents: list[str], query: str) -> None:
    ranks = list(range(len(documents)))[::-1]
    expected = bm25(documents, query)
    order = sorted(expected, key=lambda number: (-round(expected[number], 5), ranks[number]))[:50]
    hits, scores = index(documents, ranks).rank(query)
    np.testing.assert_allclose(scores, [expected[hit] for hit in hits.tolist()])
    # What is equal to five digits may change places where the sums differ in the last bit.
    assert [round(expected[hit], 4) for hit in hits.tolist()] == [round(expected[number], 4) for number in order]


@settings(max_examples=200)
@given(st.integers(0, 999), st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join))
def test_what_is_left_out_early_changes_nothing(seed: int, query: str) -> None:
    rng = random.Random(seed)
    shares = [rng.random() ** 3 for _ in WORDS]
    documents = [
        " ".join(word for word, share in zip(WORDS, shares, strict=True) for _ in range(3) if rng.random() < share)
        for _ in range(400)
    ]
    search = index(documents, rng.sample(range(400), 400))
    whole = search.rank(query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentgym_tok.envs.webshop.lookup.search._MANY", 0)
        patch.setattr("agentgym_tok.envs.webshop.lookup.search._SAMPLE", 90)
        patch.setattr("agentgym_tok.envs.webshop.lookup.search._BEAM", 60)
        pruned = search.rank(query)
    assert pruned[0].tolist() == whole[0].tolist()
    np.testing.assert_allclose(pruned[1], whole[1], rtol=1e-12)


def test_equal_scores_stand_in_the_order_of_the_asins_and_fifty_are_found() -> None:
    search = index(["lamp"] * 80, [(number * 7) % 80 for number in range(80)])
    hits = search.find("lamp")
    assert [(hit * 7) % 80 for hit in hits.tolist()] == list(range(50))


def test_scores_that_lucene_cannot_tell_apart_stand_in_the_order_of_the_asins() -> None:
    scores = np.array([1.0, 1.000_001, 2.0, 0.999_999, 1.000_02])
    assert best_first(scores, np.array([3, 2, 1, 0, 4])).tolist() == [2, 4, 3, 1, 0]


def test_lengths_are_counted_as_lucene_rounds_them() -> None:
    # 41 terms count as 40, and 43 as 42.
    documents = [f"lamp {'oak ' * (length - 1)}" for length in (40, 41, 42, 43)]
    scores = dict(zip(*(found.tolist() for found in index(documents).rank("lamp")), strict=True))
    assert scores[0] == scores[1] > scores[2] == scores[3]
    documents = [f"lamp {'oak ' * length}" for length in (10, 50, 100, 1000)]
    hits, found = index(documents).rank("lamp")
    expected = bm25(documents, "lamp")
    np.testing.assert_allclose(found, [expected[hit] for hit in hits.tolist()])


def test_repeated_words_count_as_often() -> None:
    search = index(["lamp", "lamp desk", "desk oak", "oak"])
    once, thrice = (search.rank(words)[1] for words in ("lamp", "lamp LAMPS lamp"))
    np.testing.assert_allclose(thrice, 3 * once)


@pytest.mark.parametrize("query", ["", " ", "the of", "!!", "unknown", "\ud800"])
def test_a_search_for_nothing_known_finds_nothing(query: str) -> None:
    assert index(["lamp", "desk lamp", ""]).find(query).tolist() == []


def test_searches_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_tok.envs.webshop.lookup.search._KEPT", 2)
    search = index(["lamp", "desk"])
    lamp = search.find("lamp")
    search.find("desk")
    assert search.find("lamp") is lamp
    search.find("oak")
    assert list(search._found) == ["lamp", "oak"]


def test_lengths_are_those_of_lucenes_one_byte_norms() -> None:
    assert LENGTHS[:41].tolist() == list(range(41))
    assert LENGTHS[40:48].tolist() == [40, 42, 44, 46, 48, 50, 52, 54]
    assert (len(LENGTHS), int(LENGTHS[-1])) == (256, 2013265944)


@given(st.integers(0, 2**31 - 1))
def test_a_length_is_rounded_down_to_four_binary_digits(length: int) -> None:
    assert LENGTHS[encode_lengths(np.array([length]))].tolist() == [lucene(length)]


@given(st.sets(st.text(max_size=4), max_size=20), st.text(max_size=4))
def test_terms_are_found_among_sorted_bytes(terms: set[str], other: str) -> None:
    keys = sorted(term.encode() for term in terms)
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    listed = TermList(Rows(np.frombuffer(b"".join(keys), np.uint8), ends))
    for term in {*terms, other}:
        assert listed.find(term) == (keys.index(term.encode()) if term in terms else None)
