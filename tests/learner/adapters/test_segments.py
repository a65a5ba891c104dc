"""A row is cut before its first trained token and stays whole; one that no policy gradient may train is refused."""

from dataclasses import replace
from typing import Any

import fixed
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError, InvalidIds, InvalidLogprobs
from agentgym_tok.learner.adapters import segment, trajectories
from agentgym_tok.learner.adapters.segments import check_row
from agentgym_tok.learner.adapters.tinker import datum_fields
from agentgym_tok.trace import Row, rows
from agentgym_tok.types import Completion


@given(data=st.data())
def test_the_two_parts_are_the_row_and_training_begins_with_the_second(row_strategy: Any, data: st.DataObject) -> None:
    row = data.draw(row_strategy())
    cut = segment(row)
    assert np.array_equal(np.concatenate((cut.prompt_P, cut.response_R)), row.ids_T)
    assert cut.mask_R[0]
    assert int(cut.mask_R.sum()) == int(row.mask_T.sum())
    assert np.array_equal(cut.logprobs_R[cut.mask_R], row.logprobs_T[row.mask_T])
    assert not cut.logprobs_R[~cut.mask_R].any()
    if row.advantage_T is None:
        assert cut.advantage_R is None
    else:
        assert cut.advantage_R is not None
        assert np.array_equal(cut.advantage_R[cut.mask_R], row.advantage_T[row.mask_T])


def test_what_stands_where_nothing_is_trained_never_gets_out() -> None:
    row = fixed.with_advantages(fixed.simple())[1]
    dirty = replace(
        row,
        logprobs_T=np.where(row.mask_T, row.logprobs_T, np.nan).astype(np.float32),
        advantage_T=np.where(row.mask_T, 1, np.inf).astype(np.float32),
    )
    cut = segment(dirty)
    assert np.isfinite(cut.logprobs_R).all()
    assert cut.advantage_R is not None
    assert np.isfinite(cut.advantage_R).all()
    _, fields = datum_fields(dirty)
    assert all(np.isfinite(field).all() for field in fields.values())


def of_first(row: Row, part: str, value: float) -> Row:
    array = getattr(row, part).copy()
    array[np.argmax(row.mask_T)] = value
    return replace(row, **{part: array})


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf, 0.5])
def test_an_impossible_log_probability_is_refused_and_not_replaced(value: float) -> None:
    row = fixed.with_advantages(fixed.simple())[1]
    with pytest.raises(InvalidLogprobs, match="rollout rollout 1"):
        check_row(of_first(row, "logprobs_T", value))


def test_demonstrations_and_turns_without_log_probabilities_are_refused() -> None:
    one = fixed.episode(1)
    last = one.turns[-1]
    for changed in (
        Completion(last.completion.ids_T, origin="demonstration"),
        Completion(last.completion.ids_T, sampling=last.completion.sampling),
    ):
        episode = replace(one, turns=(*one.turns[:-1], replace(last, completion=changed)))
        (row,) = rows(episode, objective="sft")
        with pytest.raises(InvalidLogprobs, match="turn 1"):
            check_row(row)
        (trained,) = rows(episode)
        check_row(trained)


def test_a_token_that_was_certain_is_no_reason() -> None:
    (row,) = rows(fixed.episode(0))
    check_row(of_first(row, "logprobs_T", 0.0))


def test_rows_that_cannot_be_trained_are_refused() -> None:
    row = fixed.with_advantages(fixed.simple())[1]
    first = row.mask_T.copy()
    first[0] = True
    for changed, error in (
        (replace(row, mask_T=np.zeros_like(row.mask_T)), InvalidIds),
        (replace(row, mask_T=first), InvalidIds),
        (replace(row, logprobs_T=row.logprobs_T[:-1]), InvalidIds),
        (of_first(row, "advantage_T", np.nan), ConfigError),
    ):
        with pytest.raises(error):
            check_row(changed)


def test_rows_of_a_rollout_and_its_child_stay_together() -> None:
    made = fixed.with_advantages(fixed.rich())
    assert [len(own) for own in trajectories(made)] == [1, 2, 2, 1]
    with pytest.raises(ConfigError, match="stand apart"):
        trajectories([made[1], made[0], made[2]])
