"""TRL gets one sequence for each prompt, with the return beside it."""

from dataclasses import replace
from typing import Any

import fixed
import numpy as np
import pytest

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.trl import rollout_fields, rollout_func, trace_reward
from agentgym_tok.learner.teacher import TeacherConfig, TeacherContext, TeacherRefusal, teacher_contexts
from agentgym_tok.trace import Episode, Failure, Row, rows

SKILLS = "What has helped:\n- Look first."


def teach(episode: Episode, made: list[Row]) -> list[TeacherContext | TeacherRefusal]:
    return teacher_contexts(episode, made, SKILLS, fixed.CHAT)


def test_each_rollout_is_its_row() -> None:
    episodes = fixed.simple()
    fields = rollout_fields(episodes)
    assert {len(values) for values in fields.values()} == {len(episodes)}
    for place, episode in enumerate(episodes):
        (row,) = rows(episode)
        assert [*fields["prompt_ids"][place], *fields["completion_ids"][place]] == row.ids_T.tolist()
        mask = np.array(fields["env_mask"][place], bool)
        assert mask[0]
        assert int(mask.sum()) == int(row.mask_T.sum())
        logprobs = np.array(fields["logprobs"][place], np.float32)
        assert np.array_equal(logprobs[mask], row.logprobs_T[row.mask_T])
        assert not logprobs[~mask].any()
    assert trace_reward(rollout_return=fields["rollout_return"], prompts=[], trainer_state=None) == [*fixed.RETURNS]


def test_a_rollout_of_several_rows_has_no_place() -> None:
    with pytest.raises(ConfigError, match="one sequence for each prompt"):
        rollout_fields(fixed.rich())


def test_a_rollout_that_failed_is_no_evidence_and_one_without_turns_is_masked() -> None:
    whole = fixed.episode(1)
    world = replace(whole, status="failed", failure=Failure("world", "Timeout"))
    policy = replace(whole, status="failed", failure=Failure("policy", "Nonsense"))
    empty = replace(world, turns=())
    fields = rollout_fields([whole, world, policy, empty])
    assert fields["rollout_return"] == [whole.return_, None, whole.return_, None]
    assert fields["env_mask"][3] == [0]
    assert len(fields["completion_ids"][3]) == len(fields["logprobs"][3]) == 1


def test_prompts_and_rollouts_pair_up() -> None:
    asked: list[Any] = []

    def play(prompts: list[Any], trainer: Any) -> list[Episode]:
        asked.extend([*prompts, trainer])
        return fixed.simple()

    run = rollout_func(play)
    assert run([*fixed.TASKS], "trainer") == rollout_fields(fixed.simple())
    assert asked == [*fixed.TASKS, "trainer"]
    with pytest.raises(ConfigError, match="pair up"):
        run(["task a"], "trainer")


def test_a_teacher_reads_more_before_the_same_completion() -> None:
    episodes = fixed.simple()
    fields = rollout_fields(episodes, teach)
    for place, episode in enumerate(episodes):
        (row,) = rows(episode)
        (context,) = teach(episode, [row])
        assert isinstance(context, TeacherContext)
        whole = [*fields["teacher_prompt_ids"][place], *fields["completion_ids"][place]]
        assert whole == context.ids_S.tolist()
        assert len(fields["teacher_prompt_ids"][place]) == len(fields["prompt_ids"][place]) + context.skill_tokens


def test_without_a_teacher_the_prompt_is_empty_and_a_wrong_teacher_is_refused() -> None:
    def none(episode: Episode, made: list[Row]) -> list[TeacherContext | TeacherRefusal]:
        return teacher_contexts(episode, made, SKILLS, fixed.CHAT, TeacherConfig(max_tokens=1))

    assert rollout_fields(fixed.simple(), none)["teacher_prompt_ids"] == [[]] * 4
    others = [context for episode in fixed.simple() for context in teach(episode, rows(episode))]
    with pytest.raises(ConfigError, match="another row"):
        rollout_fields(fixed.simple()[:1], lambda *_: others[1:2])


def test_the_batch_is_what_trls_own_trainer_made_of_it(vectors: Any) -> None:
    recorded = vectors("trl")
    assert recorded["version"] == "1.16.0"
    fields = rollout_fields(fixed.simple())
    assert sorted(fields) == recorded["fields"]
    batch = {name: np.array(tensor["values"]) for name, tensor in recorded["batch"].items()}
    for place in range(4):
        prompt, completion = fields["prompt_ids"][place], fields["completion_ids"][place]
        assert batch["prompt_ids"][place][batch["prompt_mask"][place] == 1].tolist() == prompt
        assert batch["completion_ids"][place][batch["completion_mask"][place] == 1].tolist() == completion
        trained = batch["completion_mask"][place] * batch["tool_mask"][place] == 1
        assert int(trained.sum()) == sum(fields["env_mask"][place])
        assert batch["completion_ids"][place][trained].tolist() == [
            index for index, one in zip(completion, fields["env_mask"][place], strict=True) if one
        ]
        logprobs = batch["sampling_per_token_logps"][place]
        assert logprobs[: len(completion)].tolist() == fields["logprobs"][place]
        assert not logprobs[~trained].any()
    assert batch["num_items_in_batch"] == sum(sum(mask) for mask in fields["env_mask"])
    rewards = np.array(fixed.RETURNS).reshape(2, 2)
    expected = (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, ddof=1, keepdims=True) + 1e-4)
    assert np.allclose(batch["advantages"], expected.ravel(), atol=1e-6)
