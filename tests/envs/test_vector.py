"""Vector environments: all autoreset modes, in this process and in workers, with the same ids."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import agentgym_tok
from agentgym_tok import ChatFormat
from agentgym_tok.spaces import TokenSpace

CHAT = ChatFormat.builtin()
ENV_ID = "agentgym_tok/ALFWorld-v0"
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
assert agentgym_tok.__version__


def make(kind: str, mode: AutoresetMode, **options: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    return gym.make_vec(
        ENV_ID,
        num_envs=2,
        vectorization_mode=kind,
        vector_kwargs={"autoreset_mode": mode},
        max_steps=2,
        max_context=4096,
        **options,
    )


def play(kind: str, mode: AutoresetMode, **options: Any) -> list[Any]:
    """Three steps of two environments whose episodes end after two."""
    action = CHAT.encode_turn("<action>look</action>")
    env = make(kind, mode, **options)
    try:
        seen: list[Any] = [env.reset(seed=11)]
        for _ in range(3):
            step = env.step((action, action))
            seen.append(step)
            if mode is AutoresetMode.DISABLED and (step[2] | step[3]).any():
                seen.append(env.reset(options={"reset_mask": step[2] | step[3]}))
    finally:
        env.close()
    return seen


def observations(seen: list[Any]) -> list[list[int]]:
    return [ids_T.tolist() for step in seen for ids_T in step[0]]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_workers_give_the_ids_of_this_process(mode: AutoresetMode) -> None:
    here = play("sync", mode)
    assert observations(here) == observations(play("async", mode))
    assert observations(here) == observations(play("sync", mode))
    assert len({str(ids) for ids in observations(here)}) > 4


def test_workers_without_shared_memory_and_spawned_give_the_same_ids() -> None:
    here = observations(play("sync", AutoresetMode.SAME_STEP))

    def make_env() -> gym.Env[Any, Any]:
        return gym.make(f"agentgym_tok:{ENV_ID}", max_steps=2, max_context=4096)

    for options in ({"shared_memory": False}, {"context": "spawn"}):
        env = gym.vector.AsyncVectorEnv([make_env] * 2, autoreset_mode=AutoresetMode.SAME_STEP, **options)
        action = CHAT.encode_turn("<action>look</action>")
        try:
            seen = [env.reset(seed=11), *(env.step((action, action)) for _ in range(3))]
        finally:
            env.close()
        assert observations(seen) == here


def test_next_step_mode_resets_without_a_turn_and_keeps_none_apart() -> None:
    seen = play("sync", AutoresetMode.NEXT_STEP)
    _, rewards, terminated, truncated, info = seen[-1]
    assert seen[-2][3].all()
    assert not rewards.any()
    assert not (terminated | truncated).any()
    assert info["valid_action"].tolist() == [None, None]
    assert seen[-2][4]["valid_action"].tolist() == [True, True]


def test_same_step_mode_keeps_the_final_observation() -> None:
    obs, _, _, truncated, info = play("sync", AutoresetMode.SAME_STEP)[2]
    assert truncated.all()
    for final, first in zip(info["final_obs"], obs, strict=True):
        assert not np.array_equal(final, first)
    assert info["final_info"]["truncation"].tolist() == ["steps", "steps"]


def test_observations_are_kept_when_the_next_step_overwrites_shared_memory() -> None:
    seen = play("async", AutoresetMode.SAME_STEP)
    first, second = seen[0][0][0], seen[1][0][0]
    assert len(second) > len(first)
    assert np.array_equal(second[: len(first)], first)


def test_spaces_of_a_vector_environment_are_token_spaces() -> None:
    env = make("sync", AutoresetMode.SAME_STEP)
    try:
        assert isinstance(env.single_observation_space, TokenSpace)
        assert env.observation_space.contains(env.reset(seed=0)[0])
        assert env.action_space.contains(env.action_space.sample())
    finally:
        env.close()


@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium reports the worker's error as warnings first
def test_a_bad_action_in_a_worker_raises_our_error_here() -> None:
    env = make("async", AutoresetMode.SAME_STEP)
    try:
        env.reset(seed=0)
        with pytest.raises(agentgym_tok.errors.InvalidIds, match="outside the vocabulary"):
            env.step((np.array([10**6], np.int32), np.array([1], np.int32)))
    finally:
        env.close(terminate=True)
