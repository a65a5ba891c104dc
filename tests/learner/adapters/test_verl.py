"""verl's batch holds the rows between paddings that no mask counts."""

from dataclasses import replace
from typing import Any

import fixed
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.verl import agent_loop_fields, data_proto_fields


@given(data=st.data())
def test_the_batch_without_its_padding_is_the_rows(rows_strategy: Any, data: st.DataObject) -> None:
    advantages = data.draw(st.booleans())
    made = data.draw(rows_strategy(advantages=advantages))
    extra = data.draw(st.integers(0, 3))
    width = max(int(np.argmax(row.mask_T)) for row in made) + extra
    length = max(len(row.ids_T) - int(np.argmax(row.mask_T)) for row in made) + extra
    limits = {"prompt_length": width, "response_length": length} if extra else {}
    pad = int(made[0].ids_T[-1])  # equal to an id that is trained, as a pad that is the stop token
    tensors, others, meta = data_proto_fields(made, pad_id=pad, **limits)
    attended, trained = tensors["attention_mask"] == 1, tensors["response_mask"] == 1
    assert tensors["input_ids"].shape == (len(made), width + length)
    assert np.array_equal(tensors["input_ids"], np.concatenate((tensors["prompts"], tensors["responses"]), 1))
    assert (tensors["input_ids"][~attended] == pad).all()
    assert not (trained & ~attended[:, width:]).any()
    assert int(trained.sum()) == sum(int(row.mask_T.sum()) for row in made)
    for place, row in enumerate(made):
        assert np.array_equal(tensors["input_ids"][place, attended[place]], row.ids_T)
        assert np.array_equal(tensors["position_ids"][place, attended[place]], np.arange(len(row.ids_T)))
        assert not tensors["position_ids"][place, ~attended[place]].any()
        assert np.array_equal(tensors["responses"][place, trained[place]], row.ids_T[row.mask_T])
        assert np.array_equal(tensors["rollout_log_probs"][place, trained[place]], row.logprobs_T[row.mask_T])
        scores = tensors["token_level_scores"][place]
        assert scores.sum() == np.float32(row.reward)
        last = np.flatnonzero(attended[place, width:])[-1]
        assert scores[last] == np.float32(row.reward)
        if advantages:
            assert row.advantage_T is not None
            assert np.array_equal(tensors["advantages"][place, trained[place]], row.advantage_T[row.mask_T])
    assert ("advantages" in tensors) is ("returns" in tensors) is advantages
    for name in ("rollout_log_probs", *(["advantages"] if advantages else [])):
        assert not tensors[name][~trained].any()
        assert tensors[name].dtype == np.float32
    assert {tensors[name].dtype for name in ("prompts", "responses", "response_mask", "position_ids")} == {
        np.dtype(np.int64)
    }
    assert others["uid"].tolist() == [row.group_id for row in made]
    assert meta == {"temperature": 0.5}


def test_nothing_is_cut() -> None:
    made = fixed.with_advantages(fixed.simple())
    longest = max(len(row.ids_T) - int(np.argmax(row.mask_T)) for row in made)
    data_proto_fields(made, response_length=longest)
    with pytest.raises(ConfigError, match="response is too long"):
        data_proto_fields(made, response_length=longest - 1)
    with pytest.raises(ConfigError, match="prompt is too long"):
        data_proto_fields(made, prompt_length=3)


def test_a_batch_that_verl_would_misread_is_refused() -> None:
    made = fixed.with_advantages(fixed.rich())
    bare = [replace(row, advantage_T=None) for row in made]
    with pytest.raises(ConfigError, match="several times"):
        data_proto_fields(bare)
    with pytest.raises(ConfigError, match="some rows have advantages"):
        data_proto_fields([made[0], bare[3]])
    warm = replace(made[0], temperature_T=np.full(len(made[0].ids_T), 0.5, np.float32))
    for batch in ([warm, made[3]], [replace(warm, temperature_T=warm.temperature_T * 0)]):
        with pytest.raises(ConfigError, match="temperature"):
            data_proto_fields(batch)
    with pytest.raises(ConfigError, match="no rows"):
        data_proto_fields([])


def test_the_batch_is_what_verls_own_class_held_and_its_losses_took(vectors: Any) -> None:
    recorded = vectors("verl")
    assert recorded["version"] == "0.9.1"
    made = fixed.with_advantages(fixed.rich())
    tensors, others, meta = data_proto_fields(made, prompt_length=40, response_length=90, pad_id=fixed.CHAT.stop_ids[0])
    assert recorded["batch"].keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert recorded["batch"][name] == {"dtype": str(tensor.dtype), "values": tensor.tolist()}
    assert recorded["non_tensor_batch"] == {name: array.tolist() for name, array in others.items()}
    assert recorded["meta_info"] == meta
    # Its policy loss over our masks and advantages: token-mean of -A r, where r = exp(1/8) is inside the clip.
    trained = tensors["response_mask"] == 1
    by_hand = -(tensors["advantages"][trained].astype(float) * np.exp(0.125)).mean()
    assert recorded["policy_loss"] == pytest.approx(by_hand, rel=1e-5)
    assert recorded["ppo_kl"] == pytest.approx(-0.125)


def test_an_agent_loops_output_is_the_row(vectors: Any) -> None:
    recorded = vectors("verl")
    made = [row for one in fixed.simple() for row in fixed.rows(one)]
    for row, held in zip(made, recorded["agent_loop"], strict=True):
        fields = agent_loop_fields(row)
        assert fields.keys() <= set(recorded["agent_loop_fields"])
        assert held["prompts"]["values"] == fields["prompt_ids"]
        assert held["responses"]["values"] == fields["response_ids"]
        assert held["response_mask"]["values"] == fields["response_mask"]
        assert held["rollout_log_probs"]["values"] == fields["response_logprobs"]
        assert held["rm_scores"]["values"][-1] == sum(held["rm_scores"]["values"]) == fields["reward_score"]
        assert fields["num_turns"] == 2 * len(row.turn_rewards_N)
        assert [*fields["prompt_ids"], *fields["response_ids"]] == row.ids_T.tolist()


def test_verls_group_advantages_of_rows_without_ours_are_grpos(vectors: Any) -> None:
    found = np.array(vectors("verl")["grpo_advantages"]["values"])
    rewards = np.array(fixed.RETURNS).reshape(2, 2)
    expected = ((rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, ddof=1, keepdims=True) + 1e-6)).ravel()
    assert np.allclose(np.abs(found).max(1), np.abs(expected), rtol=1e-5)
    assert np.allclose(found[:, 0], expected, rtol=1e-5)
