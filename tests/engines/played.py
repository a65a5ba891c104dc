"""Episodes of each world with a small model, and the proof of what they leave behind."""

from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym

from agentgym_tok import ChatFormat, Policy, Sampling
from agentgym_tok.harness import Harness
from agentgym_tok.trace import Episode, RunMeta, TraceStore, account, rescore, verify
from agentgym_tok.types import Scorer

__all__ = ["TOLERANCE", "TURNS", "WORLDS", "play", "prove"]

WORLDS = ("ALFWorld", "WebShop", "SearchQA")
TURNS = 8
TOLERANCE = 1e-4
"""Nats, between two engines in float32."""


def play(
    policy: Policy, chat: ChatFormat, world: str, run: Path, *, tasks: int = 1, group_size: int = 1
) -> list[Episode]:
    """Play episodes at once, and log them.

    Args:
        policy: Draws the turns.
        chat: Its format.
        world: One of `WORLDS`.
        run: Folder of the trace.
        tasks: How many.
        group_size: Rollouts of each.
    """
    # Search-QA's transcripts call tools, for which some templates have no words.
    prompting = "transcript" if world != "SearchQA" or chat.writes_calls(with_text=False) else "react"
    with TraceStore(run, meta=RunMeta.of(chat)) as store:
        harness = Harness(policy, chat, store=store, sampling=Sampling(max_tokens=24))
        return harness.run_many(
            lambda: gym.make(f"agentgym_tok/{world}-v0", chat=chat, prompting=prompting, max_steps=TURNS),
            range(tasks),
            group_size=group_size,
        )


def prove(episodes: Sequence[Episode], run: Path, chat: ChatFormat, scorer: Scorer) -> float:
    """Check that every turn is there, kept to the laws, trained, and as likely as another engine finds it.

    Returns:
        The largest difference of a log-probability, in nats.
    """
    for episode in episodes:
        assert episode.failure is None
        assert len(episode.turns) == TURNS
        assert all(turn.completion.ids_exact and turn.completion.logprobs == "raw" for turn in episode.turns)
    found = verify(run, chat)
    assert found.ok, found.breaches
    assert found.not_replayed == 0
    assert found.turns == TURNS * len(episodes)
    sums = account(episodes)
    assert sums.complete
    assert sums.trained == sums.sampled > 0
    again = rescore(run, scorer, tolerance=TOLERANCE)
    assert again.ok, again.differences
    assert sum(one.tokens for one in again.judged) == sums.sampled
    return max(one.largest_abs for one in again.judged)
