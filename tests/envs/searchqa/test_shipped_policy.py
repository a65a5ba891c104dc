"""The policy that ships answers the held-out questions, as its card says."""

from pathlib import Path

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs.searchqa import SearchQAEnv
from agentgym_tok.harness import Harness
from agentgym_tok.trace import TraceStore, verify

CHAT = ChatFormat.builtin()


def test_questions_about_things_that_it_never_saw_are_answered(tmp_path: Path) -> None:
    def make_env() -> SearchQAEnv:
        return SearchQAEnv(CHAT, split="test")

    tasks = make_env().engine.tasks()
    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        harness = Harness("builtin", CHAT, store=store, sampling=Sampling(temperature=0.0, max_tokens=128))
        episodes = harness.run_many(make_env, tasks)
    assert len(episodes) == 200
    assert sum(bool(episode.success) for episode in episodes) / len(episodes) >= 0.8  # 85.5 %
    assert verify(tmp_path / "run").ok
