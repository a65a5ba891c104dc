"""A pack holds every distinct prefix once, and each token's ancestors are what stands before it in its own sequence."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import InvalidIds
from agentgym_tok.learner.packing import Asked, Pack, deal, pack
from agentgym_tok.tokens import as_ids

# Few ids, so that much is shared; and some whose bytes sort otherwise than their numbers.
SEQUENCES = st.lists(st.lists(st.sampled_from([1, 2, 256, 70_000]), min_size=1, max_size=9), min_size=1, max_size=8)


def ask(sequences: Sequence[Sequence[int]]) -> list[Asked]:
    return [Asked(as_ids(ids), np.arange(len(ids))) for ids in sequences]


def seen(packed: Pack, place: int) -> list[int]:
    """Return the ids that a token sees, itself included."""
    index = next(index for index, one in enumerate(packed.segments) if one.start <= place < one.end)
    own = packed.segments[index]
    places = [place for start, end in own.before for place in range(start, end)]
    return [int(packed.ids_P[one]) for one in [*places, *range(own.start, place + 1)]]


@given(SEQUENCES)
def test_each_token_sees_exactly_its_own_sequence(sequences: list[list[int]]) -> None:
    packed = pack(ask(sequences))
    asked = iter(packed.places_K.tolist())
    for ids in sequences:
        for place in range(len(ids)):
            at = next(asked)
            assert seen(packed, at) == ids[: place + 1]
            assert packed.depth_P[at] == place


@given(SEQUENCES)
def test_every_distinct_prefix_stands_once(sequences: list[list[int]]) -> None:
    packed = pack(ask(sequences))
    prefixes = {tuple(ids[: place + 1]) for ids in sequences for place in range(len(ids))}
    assert len(packed.ids_P) == len(prefixes)
    assert [one.end for one in packed.segments[:-1]] == [one.start for one in packed.segments[1:]]
    assert (packed.segments[0].start, packed.segments[-1].end) == (0, len(prefixes))


@given(SEQUENCES, st.randoms())
def test_the_order_of_sequences_does_not_change_the_pack(sequences: list[list[int]], random: object) -> None:
    shuffled = list(sequences)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = pack(ask(sequences)), pack(ask(shuffled))
    assert np.array_equal(first.ids_P, second.ids_P)
    assert first.segments == second.segments


@given(SEQUENCES, st.integers(1, 30))
def test_no_pack_is_larger_than_the_budget_unless_a_single_sequence_is(sequences: list[list[int]], budget: int) -> None:
    asked = ask(sequences)
    dealt = deal(asked, budget)
    assert sorted(index for places in dealt for index in places) == list(range(len(sequences)))
    for places in dealt:
        assert len(places) == 1 or len(pack([asked[index] for index in places]).ids_P) <= budget


def test_without_sharing_every_sequence_counts_whole() -> None:
    asked = ask([[1, 2, 3], [1, 2, 4], [1, 2, 5]])
    assert deal(asked, 6) == [[0, 1, 2]]
    assert deal(asked, 6, shared=False) == [[0, 1], [2]]


def test_what_stands_behind_the_last_trained_token_is_left_out() -> None:
    asked = Asked.of(as_ids([5, 6, 7, 8, 9]), np.array([0, 0, 1, 0, 0], bool), where="row")
    assert (asked.ids_T.tolist(), asked.predictors_K.tolist()) == ([5, 6], [1])


def test_a_sequence_that_asks_for_nothing_is_in_no_pack() -> None:
    nothing = Asked.of(as_ids([5, 6]), np.zeros(2, bool), where="row")
    assert deal([nothing, *ask([[1, 2]])], 10) == [[1]]


def test_a_first_token_cannot_be_trained() -> None:
    with pytest.raises(InvalidIds, match="where: row"):
        Asked.of(as_ids([5, 6]), np.array([1, 0], bool), where="row")
