"""Padding and text actions: the same ids, in another form."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs import PadTokens, TextAction, TokenEnv
from agentgym_tok.errors import ConfigError, InvalidAction, InvalidIds

CHAT = ChatFormat.builtin()
Make = Callable[..., TokenEnv]
LOOK = CHAT.encode_turn("<action>look</action>")


def test_padding_adds_and_removes_nothing_but_minus_one(alfworld: Make) -> None:
    plain, padded = alfworld(max_context=2048), PadTokens(alfworld(max_context=2048), action_length=64)
    ids_T, _ = plain.reset(seed=0)
    fixed, _ = padded.reset(seed=0)
    action = np.full(64, -1, np.int32)
    action[: len(LOOK)] = LOOK
    for _ in range(3):
        assert padded.observation_space.contains(fixed)
        assert np.array_equal(fixed[: len(ids_T)], ids_T)
        assert set(fixed[len(ids_T) :]) == {-1}
        assert padded.action_space.contains(action)
        ids_T, *_ = plain.step(LOOK)
        fixed, *_ = padded.step(action)


def test_padding_inside_an_action_is_a_mistake(alfworld: Make) -> None:
    env = PadTokens(alfworld())
    env.reset(seed=0)
    with pytest.raises(InvalidIds, match=r"action\[1\]"):
        env.step(np.array([5, -1, 5], np.int32))
    with pytest.raises(InvalidAction):
        env.step(np.full(9, -1, np.int32))
    with pytest.raises(InvalidIds, match="one dimension"):
        env.step(np.zeros((2, 2), np.int32))


def test_an_observation_that_does_not_fit_is_never_cut(alfworld: Make) -> None:
    with pytest.raises(ConfigError, match="max_context=length"):
        PadTokens(alfworld(), length=10).reset(seed=0)


def test_padded_environments_stack_into_arrays() -> None:
    def make() -> gym.Env[Any, Any]:
        return PadTokens(gym.make("agentgym_tok:agentgym_tok/ALFWorld-v0", max_context=1024), action_length=32)

    for kind in (gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv):
        env = kind([make, make])
        try:
            obs, _ = env.reset(seed=0)
            assert obs.shape == (2, 1024)
            action = np.full((2, 32), -1, np.int32)
            action[:, : len(LOOK)] = LOOK
            obs, *_ = env.step(action)
            assert (obs >= -1).all()
        finally:
            env.close()


def test_text_is_encoded_once_and_marked_as_a_demonstration(alfworld: Make) -> None:
    env = TextAction(alfworld())
    env.reset(seed=0)
    before = env.unwrapped.context
    obs, _, _, _, info = env.step("look")
    assert info["action_text"] == "look"
    assert info["format_ok"]
    span = env.unwrapped.context.spans[1]
    assert span.origin == "demonstration"
    assert np.array_equal(obs[len(before) : len(before) + len(LOOK)], LOOK)


def test_whole_turns_are_taken_as_they_are(alfworld: Make) -> None:
    env = TextAction(alfworld(), commands=False)
    env.reset(seed=0)
    *_, info = env.step("<think>\nhm\n</think>\n\n<action>inventory</action>")
    assert info["action_text"] == "inventory"
    *_, info = env.step("look")
    assert not info["format_ok"]


def test_text_that_spells_a_stop_token_does_not_end_the_turn(alfworld: Make) -> None:
    env = TextAction(alfworld())
    env.reset(seed=0)
    env.step("look<|im_end|>")
    ids = env.unwrapped.context.spans[1].ids_T.tolist()
    assert [index for index in ids if index in CHAT.stop_ids] == [CHAT.stop_ids[0]] == ids[-1:]


def test_a_refused_text_leaves_the_context_as_it_was(alfworld: Make) -> None:
    env = TextAction(alfworld(max_action=100))
    before, _ = env.reset(seed=0)
    context = env.unwrapped.context  # type: ignore[attr-defined]
    with pytest.raises(InvalidAction):
        env.step("word " * 300)
    assert env.unwrapped.context is context  # type: ignore[attr-defined]
    obs_T, *_ = env.step("look")
    assert np.array_equal(obs_T[: len(before) + len(LOOK)], [*before, *LOOK])


def test_only_text_is_text(alfworld: Make) -> None:
    env = TextAction(alfworld())
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="no text"):
        env.step(LOOK)  # type: ignore[arg-type]


def test_only_token_environments_can_be_wrapped() -> None:
    cart = gym.make("CartPole-v1")
    for wrapper in (PadTokens, TextAction):
        with pytest.raises(ConfigError):
            wrapper(cart)  # type: ignore[arg-type]
    cart.close()
