"""The policy that ships solves the official held-out games, as its card says: by their own goals, and by people's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs.alfworld import ALFWorldEnv
from agentgym_tok.harness import Harness
from agentgym_tok.trace import TraceStore, verify

CHAT = ChatFormat.builtin()


def solved(tasks: Sequence[str], trace: Path, **env: Any) -> float:
    """Play each task once, without chance; the share that is won."""
    with TraceStore(trace, chat=CHAT) as store:
        harness = Harness("builtin", CHAT, store=store, sampling=Sampling(temperature=0.0, max_tokens=64))
        episodes = harness.run_many(lambda: ALFWorldEnv(CHAT, source="official", **env), tasks)
    assert verify(trace).ok
    return sum(bool(episode.success) for episode in episodes) / len(tasks)


def tasks_of(**env: Any) -> Sequence[str]:
    return ALFWorldEnv(CHAT, source="official", **env).unwrapped.engine.tasks()


@pytest.mark.parametrize("split", ["valid_seen", "valid_unseen"])
def test_official_games_that_it_never_saw_are_solved(official: Path, tmp_path: Path, split: str) -> None:
    env = {"split": split, "data": official}
    tasks = tasks_of(**env)
    assert len(tasks) == {"valid_seen": 140, "valid_unseen": 134}[split]
    assert solved(tasks, tmp_path / "run", **env) > 0.92  # 99.3 % and 98.5 %


@pytest.mark.parametrize("split", ["valid_seen", "valid_unseen"])
def test_goals_in_peoples_words_are_solved(official: Path, tmp_path: Path, split: str) -> None:
    env = {"split": split, "data": official, "goal": "human"}
    tasks = tasks_of(**env)
    assert len(tasks) == {"valid_seen": 449, "valid_unseen": 429}[split]
    assert solved(tasks[::9], tmp_path / "run", **env) > 0.6  # of all of them 78.4 % and 84.8 %
