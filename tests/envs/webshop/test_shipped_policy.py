"""The policy that ships buys what held-out instructions ask for, as its card says."""

from pathlib import Path

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs.webshop import WebShopEnv
from agentgym_tok.harness import Harness
from agentgym_tok.trace import TraceStore, verify

CHAT = ChatFormat.builtin()


def test_goals_of_a_shop_that_it_never_saw_are_met(tmp_path: Path) -> None:
    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        harness = Harness("builtin", CHAT, store=store, sampling=Sampling(temperature=0.0, max_tokens=320))
        episodes = harness.run_many(lambda: WebShopEnv(CHAT, split="eval"), tasks=range(0, 500, 5))
    assert len(episodes) == 100
    assert sum(bool(episode.success) for episode in episodes) / len(episodes) >= 0.75
    assert verify(tmp_path / "run").ok
