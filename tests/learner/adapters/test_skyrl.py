"""SkyRL gets whole trajectories, each row with the root's return, the last one marked."""

from dataclasses import replace
from itertools import groupby
from typing import Any

import fixed
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.skyrl import generator_fields


@given(data=st.data())
def test_every_trained_token_is_there_once_under_its_trajectory(rows_strategy: Any, data: st.DataObject) -> None:
    made = data.draw(rows_strategy(advantages=True))
    fields = generator_fields(made)
    filled = {name: value for name, value in fields.items() if value is not None}
    assert {len(value) for value in filled.values()} == {len(made)}
    for place, row in enumerate(made):
        whole = [*fields["prompt_token_ids"][place], *fields["response_ids"][place]]
        assert whole == row.ids_T.tolist()
        mask = np.array(fields["loss_masks"][place], bool)
        assert int(mask.sum()) == int(row.mask_T.sum())
        logprobs = np.array(fields["rollout_logprobs"][place], np.float32)
        assert np.array_equal(logprobs[mask], row.logprobs_T[row.mask_T])
        assert not logprobs[~mask].any()
        root = next(one for one in made if one.rollout_id == (row.parent_rollout or row.rollout_id))
        assert fields["rewards"][place] == root.reward
        assert fields["stop_reasons"][place] == ("length" if row.status == "truncated" else "stop")
    # Each trajectory is one block with a name of its own, and only its last row is a last step.
    names = [(one["instance_id"], one["repetition_id"]) for one in fields["trajectory_ids"]]
    blocks = [len(list(block)) for _, block in groupby(names)]
    assert len(blocks) == len(set(names)) == len({row.parent_rollout or row.rollout_id for row in made})
    assert fields["is_last_step"] == [place == size - 1 for size in blocks for place in range(size)]


def test_rows_that_stand_apart_or_lack_their_root_are_refused() -> None:
    made = fixed.with_advantages(fixed.rich())
    child = next(row for row in made if row.parent_rollout)
    with pytest.raises(ConfigError, match="own rows are missing"):
        generator_fields([child])
    with pytest.raises(ConfigError, match="stand apart"):
        generator_fields([made[1], made[0], made[2]])
    with pytest.raises(ConfigError, match="no rows"):
        generator_fields([])


def test_a_childs_reward_is_not_its_rollouts() -> None:
    made = fixed.with_advantages(fixed.rich())
    paid = [replace(row, reward=9.0) if row.parent_rollout else row for row in made]
    assert 9.0 not in generator_fields(paid)["rewards"]


def test_the_fields_are_those_that_skyrls_own_functions_took(vectors: Any) -> None:
    recorded = vectors("skyrl")
    assert recorded["version"] == "0.3.0"
    fields = generator_fields(fixed.with_advantages(fixed.rich()))
    assert sorted(fields) == recorded["fields"]
    ids = [f"{one['instance_id']}_{one['repetition_id']}" for one in fields["trajectory_ids"]]
    assert ids == recorded["trajectories"]
    tensors = {name: np.array(tensor["values"]) for name, tensor in recorded["tensors"].items()}
    width = tensors["loss_masks"].shape[1]
    for place, response in enumerate(fields["response_ids"]):
        own = slice(width - len(response), width)  # on the right, without padding
        assert tensors["loss_masks"][place].sum() == sum(fields["loss_masks"][place])
        assert tensors["loss_masks"][place, own].tolist() == fields["loss_masks"][place]
        assert tensors["logprobs"][place, own].tolist() == fields["rollout_logprobs"][place]
        assert tensors["rewards"][place].sum() == tensors["rewards"][place, -1] == fields["rewards"][place]
        whole = [*fields["prompt_token_ids"][place], *response]
        assert tensors["sequences"][place][tensors["attention_mask"][place] == 1].tolist() == whole
