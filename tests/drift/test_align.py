"""Hunks are differences, all of them, and cost linear work."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.drift import align
from agentgym_tok.drift.align import Hunk, common_prefix, find_hunks, refine
from agentgym_tok.tokens import Ids, as_ids

IDS = st.lists(st.integers(0, 5), max_size=60)


def rebuilt(exact_T: Ids, text_T: Ids, hunks: list[Hunk]) -> list[int]:
    """Return the exact ids with every hunk replaced by the text's."""
    out: list[int] = []
    place = 0
    for hunk in hunks:
        assert place <= hunk.start <= hunk.stop
        out += exact_T[place : hunk.start].tolist()
        out += text_T[hunk.text_start : hunk.text_stop].tolist()
        place = hunk.stop
    return [*out, *exact_T[place:].tolist()]


@given(IDS, IDS)
def test_hunks_turn_one_sequence_into_the_beginning_of_the_other(one: list[int], other: list[int]) -> None:
    exact_T, text_T = as_ids(one), as_ids(other)
    hunks = find_hunks(exact_T, text_T)
    made = rebuilt(exact_T, text_T, hunks)
    assert made == text_T[: len(made)].tolist()
    assert all(hunk.count for hunk in hunks)
    for hunk in hunks:
        finer = refine(exact_T, text_T, hunk)
        inside = [
            Hunk(part.start - hunk.start, part.stop - hunk.start, part.text_start, part.text_stop) for part in finer
        ]
        made = rebuilt(exact_T[hunk.start : hunk.stop], text_T, inside)
        assert made == text_T[hunk.text_start :][: len(made)].tolist()


@given(IDS, IDS)
def test_the_first_hunk_begins_at_the_first_difference(one: list[int], other: list[int]) -> None:
    exact_T, text_T = as_ids(one), as_ids(other)
    hunks = find_hunks(exact_T, text_T)
    same = common_prefix(exact_T, text_T)
    assert [hunk.start for hunk in hunks[:1]] == ([same] if same < len(exact_T) and hunks else [])
    if same < len(exact_T):
        assert hunks


@given(IDS, IDS)
def test_a_text_that_goes_on_is_no_difference(one: list[int], more: list[int]) -> None:
    assert find_hunks(as_ids(one), as_ids([*one, *more])) == []


@given(st.data())
def test_planted_differences_are_found_where_they_are(data: st.DataObject) -> None:
    exact = list(range(1000, 1400))
    places = sorted(data.draw(st.sets(st.integers(1, 12), min_size=1, max_size=5)))
    text, expected = list(exact), []
    for place in reversed(places):
        start, lost, new = place * 30, data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
        if lost or new:
            text[start : start + lost] = range(5000 + start, 5000 + start + new)
            expected.append((start, start + lost))
    hunks = find_hunks(as_ids(exact), as_ids(text))
    assert [(hunk.start, hunk.stop) for hunk in hunks] == expected[::-1]


def test_repeated_text_does_not_mislead() -> None:
    frame, said = [1, 2, 3, 4, 5, 6, 7, 8], [*range(100, 120)]
    exact = [n for turn in range(40) for n in (*frame, *range(1000 + 9 * turn, 1009 + 9 * turn), *said)]
    text = [n for turn in range(40) for n in (*frame, *said)]  # every turn lost its first nine ids
    hunks = find_hunks(as_ids(exact), as_ids(text))
    assert [(hunk.start, hunk.stop - hunk.start, hunk.text_stop - hunk.text_start) for hunk in hunks] == [
        (37 * turn + 8, 9, 0) for turn in range(40)
    ]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of ids that each round looks at."""
    seen: list[int] = []
    grams: Callable[[Ids, int], object] = align._grams

    def counted(ids_T: Ids, size: int) -> object:
        seen.append(len(ids_T))
        return grams(ids_T, size)

    monkeypatch.setattr(align, "_grams", counted)
    return seen


@pytest.mark.parametrize("kind", ["random", "one id", "two ids", "many drifts", "reversed"])
def test_work_grows_with_the_length_alone(work: list[int], kind: str) -> None:
    rng = np.random.default_rng(0)
    costs = []
    for length in (5_000, 20_000, 80_000):
        exact_T = rng.integers(0, {"one id": 1, "two ids": 2}.get(kind, 50_000), length)
        text_T = rng.integers(0, {"one id": 1, "two ids": 2}.get(kind, 50_000), length)
        if kind in {"many drifts", "reversed"}:
            text_T = exact_T[::-1].copy() if kind == "reversed" else exact_T.copy()
            text_T[::50] += 60_000
        work.clear()
        find_hunks(as_ids(exact_T), as_ids(text_T))
        costs.append(sum(work))
        assert sum(work) <= 25 * length
    assert costs[2] <= 5 * costs[1] or costs[1] == 0


def test_a_short_sequence_costs_nothing_of_what_a_long_text_goes_on_with(work: list[int]) -> None:
    text_T = as_ids(np.arange(200_000))
    find_hunks(as_ids([0, 1, 7, 3]), text_T)
    assert sum(work) < 100_000
