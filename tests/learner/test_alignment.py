"""Teacher and student score the same sampled tokens, wherever these stand."""

from collections.abc import Callable

import numpy as np
import pytest

from agentgym_tok.errors import InvalidIds, InvalidLogprobs
from agentgym_tok.learner import align_scores
from agentgym_tok.trace import Row


@pytest.fixture
def row(make_row: Callable[..., Row]) -> Row:
    return make_row("a", [0, 1], tokens=[2, 1])  # world, a, b, world, c


def teacher(row: Row, extra: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row after a longer prompt, and a score that names each place of the row."""
    ids_S = np.concatenate([np.full(extra, 99, np.int32), row.ids_T])
    mask_S = np.concatenate([np.zeros(extra, bool), row.mask_T])
    return ids_S, mask_S, -np.concatenate([np.full(extra, 50.0), np.arange(len(row.ids_T))])


@pytest.mark.parametrize("extra", [0, 1, 7])
def test_the_length_of_the_privileged_text_does_not_matter(row: Row, extra: int) -> None:
    assert align_scores(row, *teacher(row, extra)).tolist() == [0, -1, -2, 0, -4]


def test_absolute_places_would_have_been_wrong(row: Row) -> None:
    ids_S, mask_S, scores_S = teacher(row, 3)
    assert (
        align_scores(row, ids_S, mask_S, scores_S)[row.mask_T].tolist()
        != scores_S[: len(row.ids_T)][row.mask_T].tolist()
    )


def test_a_mask_shifted_by_one_a_cut_and_another_id_are_refused(row: Row) -> None:
    ids_S, mask_S, scores_S = teacher(row, 3)
    with pytest.raises(InvalidIds, match="the first other one at 0"):
        align_scores(row, ids_S, np.roll(mask_S, -1), scores_S)
    with pytest.raises(InvalidIds, match="got: 2 ids, the first other one at 2"):
        align_scores(row, ids_S[:-1], mask_S[:-1], scores_S[:-1])
    ids_S[-1] += 1
    with pytest.raises(InvalidIds, match="the first other one at 2"):
        align_scores(row, ids_S, mask_S, scores_S)


@pytest.mark.parametrize("bad", [-np.inf, np.nan])
def test_a_score_that_is_no_number_is_refused_where_it_counts_only(row: Row, bad: float) -> None:
    ids_S, mask_S, scores_S = teacher(row, 2)
    scores_S[0] = bad
    assert np.isfinite(align_scores(row, ids_S, mask_S, scores_S)).all()
    scores_S[-1] = bad
    with pytest.raises(InvalidLogprobs, match="not finite"):
        align_scores(row, ids_S, mask_S, scores_S)
