"""`TokenSpace` keeps Gymnasium's contract, alone and in vector environments."""

import copy
import json
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Tuple
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import (
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError, InvalidIds
from agentgym_tok.spaces import TokenSpace
from agentgym_tok.tokens import as_ids

bounds = st.tuples(st.integers(1, 2**31), st.integers(0, 40), st.integers(0, 40)).map(
    lambda drawn: (drawn[0], max(drawn[1:]), min(drawn[1:]))
)


@given(bounds, st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_sample_is_in_the_space_and_follows_its_seed(limits: tuple[int, int, int], seed: int) -> None:
    space, twin = TokenSpace(*limits, seed=seed), TokenSpace(*limits)
    twin.seed(seed)
    for _ in range(3):
        ids_T = space.sample()
        assert ids_T in space
        assert not ids_T.flags.writeable
        assert np.array_equal(ids_T, twin.sample())


def test_samples_have_every_length_of_a_short_space_and_stay_short_in_a_long_one() -> None:
    space = TokenSpace(5, 3, seed=0)
    assert {len(space.sample()) for _ in range(100)} == {0, 1, 2, 3}
    assert max(len(TokenSpace(5, 10**9, 2, seed=seed).sample()) for seed in range(50)) <= 34


def test_sampling_takes_no_mask() -> None:
    with pytest.raises(ConfigError):
        TokenSpace(5, 3).sample(mask=np.ones(5, np.int8))
    with pytest.raises(ConfigError):
        TokenSpace(5, 3).sample(probability=np.ones(5) / 5)


@pytest.mark.parametrize(
    "inside", [np.array([], np.int32), np.array([0], np.int32), np.array([9, 0, 9], np.int32), as_ids([1])]
)
def test_ids_within_the_bounds_are_contained(inside: Any) -> None:
    assert inside in TokenSpace(10, 3)


@pytest.mark.parametrize(
    "outside",
    [
        np.array([10], np.int32),
        np.array([-1], np.int32),
        np.array([1, 2, 3, 4], np.int32),
        np.array([[1]], np.int32),
        np.array(1, np.int32),
        np.array([1], np.int64),
        np.array([1.0]),
        [1],
        "a",
        None,
    ],
)
def test_everything_else_is_not_contained(outside: Any) -> None:
    assert outside not in TokenSpace(10, 3)


def test_a_shortest_length_holds() -> None:
    assert np.array([1], np.int32) not in TokenSpace(10, 3, min_length=2)
    assert np.array([1, 1], np.int32) in TokenSpace(10, 3, min_length=2)


@pytest.mark.parametrize("limits", [(0, 3), (-1, 3), (5, -1), (5, 3, 4), (5, 3, -1), (2**31 + 1, 3)])
def test_bounds_that_make_no_sense_are_refused(limits: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="token space"):
        TokenSpace(*limits)


def test_samples_pass_through_json() -> None:
    space = TokenSpace(10, 3, seed=1)
    samples = [space.sample() for _ in range(5)]
    back = space.from_jsonable(json.loads(json.dumps(space.to_jsonable(samples))))
    assert all(one in space for one in back)
    assert all(np.array_equal(one, other) for one, other in zip(samples, back, strict=True))


def test_json_that_holds_no_ids_is_refused() -> None:
    with pytest.raises(InvalidIds):
        TokenSpace(10, 3).from_jsonable([[1.5]])


def test_equal_bounds_are_equal_spaces() -> None:
    space = TokenSpace(10, 3, 1, seed=0)
    for twin in (TokenSpace(10, 3, 1, seed=9), pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
        assert twin == space
        assert hash(twin) == hash(space)
    for other in (TokenSpace(11, 3, 1), TokenSpace(10, 4, 1), TokenSpace(10, 3), Box(0, 9, (3,), np.int32), 10):
        assert other != space


def test_a_pickled_space_goes_on_with_its_own_draws() -> None:
    space = TokenSpace(1000, 9, seed=4)
    space.sample()
    twin = pickle.loads(pickle.dumps(space))
    assert [space.sample().tolist() for _ in range(4)] == [twin.sample().tolist() for _ in range(4)]


def test_the_representation_makes_the_space_again() -> None:
    space = TokenSpace(10, 3, 1)
    assert eval(repr(space), {"TokenSpace": TokenSpace}) == space


@given(st.lists(st.integers(0, 9), max_size=5))
@settings(deadline=None)
def test_flattened_ids_come_back(ids: list[int]) -> None:
    space = TokenSpace(10, 5)
    flat = flatten(space, np.array(ids, np.int32))
    assert flat in flatten_space(space)
    assert flat.shape == (flatdim(space),)
    back = unflatten(space, flat)
    assert back in space
    assert back.tolist() == ids


def test_a_space_inside_others_flattens_with_them() -> None:
    space = Dict({"ids": TokenSpace(10, 4, seed=0), "box": Box(0, 1, (2,))})
    point = space.sample()
    back = unflatten(space, flatten(space, point))
    assert flatten_space(space).shape == (6,)
    assert np.array_equal(back["ids"], point["ids"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_shared_memory_gives_back_what_each_environment_wrote(method: str) -> None:
    space = TokenSpace(2**31, 4)
    memory = create_shared_memory(space, n=3, ctx=multiprocessing.get_context(method))
    written = [[1, 2, 3, 4], [], [2**31 - 1]]
    for index, ids in enumerate(written):
        write_to_shared_memory(space, index, np.array(ids, np.int32), memory)
    read = read_from_shared_memory(space, memory, n=3)
    assert [ids_T.tolist() for ids_T in read] == written
    assert [ids_T.tolist() for ids_T in read[1:]] == written[1:]
    assert all(ids_T in space for ids_T in read)


def test_an_observation_that_was_handed_out_does_not_change_with_the_next_step() -> None:
    space = TokenSpace(10, 4)
    memory = create_shared_memory(space, n=1)
    write_to_shared_memory(space, 0, np.array([1, 2, 3], np.int32), memory)
    live = read_from_shared_memory(space, memory, n=1)
    one, whole = live[0], copy.deepcopy(live)
    write_to_shared_memory(space, 0, np.array([9], np.int32), memory)
    assert one.tolist() == [1, 2, 3]
    assert [ids_T.tolist() for ids_T in whole] == [[1, 2, 3]]
    assert isinstance(whole, tuple)
    assert live[0].tolist() == [9]


def test_ids_longer_than_the_space_are_refused_by_the_shared_memory() -> None:
    space = TokenSpace(10, 2)
    memory = create_shared_memory(space, n=2)
    write_to_shared_memory(space, 0, np.array([1, 2], np.int32), memory)
    write_to_shared_memory(space, 1, np.array([3], np.int32), memory)
    with pytest.raises(ValueError, match="broadcast"):
        write_to_shared_memory(space, 0, np.array([1, 2, 3], np.int32), memory)
    assert read_from_shared_memory(space, memory, n=2)[1].tolist() == [3]


def test_a_batch_is_a_tuple_of_observations_of_any_length() -> None:
    space = TokenSpace(10, 4, seed=0)
    batch = batch_space(space, 3)
    assert isinstance(batch, Tuple)
    point = batch.sample()
    assert len(point) == 3
    assert all(one in space for one in point)
    assert [one.tolist() for one in iterate(batch, point)] == [one.tolist() for one in point]
    out = create_empty_array(space, n=3)
    joined = concatenate(space, [np.array([1], np.int32), np.array([], np.int32), np.array([2, 3], np.int32)], out)
    assert [one.tolist() for one in joined] == [[1], [], [2, 3]]
