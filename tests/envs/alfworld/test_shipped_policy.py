"""The policy that ships solves the official held-out games, as its card says."""

from pathlib import Path

import pytest

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs.alfworld import ALFWorldEnv
from agentgym_tok.harness import Harness
from agentgym_tok.trace import TraceStore, verify

CHAT = ChatFormat.builtin()


@pytest.mark.parametrize("split", ["valid_seen", "valid_unseen"])
def test_official_games_that_it_never_saw_are_solved(official: Path, tmp_path: Path, split: str) -> None:
    def make_env() -> ALFWorldEnv:
        return ALFWorldEnv(CHAT, source="official", split=split, data=official)

    env = make_env()
    tasks = env.unwrapped.engine.tasks()
    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        harness = Harness("builtin", CHAT, store=store, sampling=Sampling(temperature=0.0, max_tokens=32))
        episodes = harness.run_many(make_env, tasks)
    assert len(episodes) == {"valid_seen": 140, "valid_unseen": 134}[split]
    assert sum(bool(episode.success) for episode in episodes) / len(episodes) > 0.92  # 99.3 % and 97.8 %
    assert verify(tmp_path / "run").ok
