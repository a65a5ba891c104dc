"""Where turns part: at the first place that differs, and nowhere where they are equal."""

from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.doctor.parting import parting
from agentgym_tok.tokens import as_ids

IDS = st.lists(st.integers(0, 2), max_size=6)


@given(IDS, IDS)
def test_turns_part_where_their_common_prefix_ends(a: list[int], b: list[int]) -> None:
    place = parting(as_ids(a), as_ids(b))
    assert place == parting(as_ids(b), as_ids(a))
    assert (place is None) is (a == b)
    if place is not None:
        assert a[:place] == b[:place]
        assert a[place : place + 1] != b[place : place + 1]
