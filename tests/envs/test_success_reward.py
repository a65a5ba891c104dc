"""10 for success, else 0, with the world's own reward kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs import TextAction, TokenEnv
from agentgym_tok.envs.record_trace import RecordTrace
from agentgym_tok.envs.success_reward import SuccessReward
from agentgym_tok.trace import RunMeta, TraceStore, verify

CHAT = ChatFormat.builtin()


@pytest.mark.parametrize(("command", "reward", "raw"), [("win", 10.0, 1.0), ("a", 0.0, 0.0), ("cut", 0.0, 0.0)])
def test_success_alone_is_rewarded(parrot: Callable[..., TokenEnv], command: str, reward: float, raw: float) -> None:
    env = SuccessReward(parrot())
    env.reset(seed=0)
    _, got, *_, info = env.step(CHAT.encode_turn(f"<action>{command}</action>"))
    assert (got, info["raw_reward"]) == (reward, raw)


def test_the_size_is_free_and_a_trace_can_hold_it(parrot: Callable[..., TokenEnv], tmp_path: Path) -> None:
    meta = RunMeta(fingerprint=CHAT.fingerprint, vocab_size=CHAT.vocab_size, chat="builtin")
    with TraceStore(tmp_path, meta=meta) as store:
        env = TextAction(RecordTrace(SuccessReward(parrot(), reward=2.5), store))
        env.reset(seed=0)
        env.step("win")
        (episode,) = store.episodes()
    assert episode.return_ == 2.5
    assert verify(tmp_path, CHAT).ok


def test_success_is_paid_once_at_the_end(parrot: Callable[..., TokenEnv]) -> None:
    class Early(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            *before, info = self.env.step(action)
            return *before, {**info, "success": True}

    env = SuccessReward(Early(parrot()))
    env.reset(seed=0)
    rewards = [env.step(CHAT.encode_turn(f"<action>{command}</action>"))[1] for command in ("a", "b", "win")]
    assert rewards == [0.0, 0.0, 10.0]
