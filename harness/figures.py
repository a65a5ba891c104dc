"""What a rollout comes to, in a few numbers."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from agentgym_tok.trace import Boundary, Episode, mask_reason
from agentgym_tok.trace.rows import family

__all__ = ["figures"]

_REWRITES = frozenset({"compaction", "strip_reasoning"})


def figures(episode: Episode) -> dict[str, float]:
    """Return the figures of a rollout, those of its subagents included unless something else is said.

    Args:
        episode: A rollout that has ended.

    Returns:
        `return` and `turns` of the rollout alone; `success` (1 or 0) where the world says so; `seconds` from its first
        request to its last answer; `sampled_tokens` with those of attempts that were thrown away; `trained_share`, what
        of these `rl` trains, where there are any; `retries` of turns and tools; `compactions`; `subagents`; and
        `failures/BOUNDARY` for each boundary, also of what another attempt mended.
    """
    members = family(episode)
    turns = [turn for member in members for turn in member.turns]
    drawn = [(turn, len(turn.completion.ids_T)) for turn in turns if turn.completion.origin == "sampled"]
    sampled = sum(count for _, count in drawn)
    called = [fact for turn in turns for fact in turn.facts.get("tools", ())]
    again = sum((turn.attempt > 0) + (turn.facts.get("aside") == "feedback") for turn in turns)
    found: dict[str, float] = {"return": episode.return_, "turns": len(episode.steps)}
    if episode.success is not None:
        found["success"] = float(episode.success)
    if episode.turns:
        found["seconds"] = episode.turns[-1].ended - episode.turns[0].started
    found["sampled_tokens"] = sampled
    if sampled:
        found["trained_share"] = sum(count for turn, count in drawn if mask_reason(turn, "rl") is None) / sampled
    found["retries"] = again + sum(fact["attempts"] - 1 for fact in called)
    found["compactions"] = sum(turn.edge.kind in _REWRITES for turn in turns)
    found["subagents"] = len(members) - 1
    failures = Counter(boundary for member in members for boundary in _failures(member))
    # A child that failed is counted once, as an episode.
    failures.update(fact["boundary"] for fact in called if "boundary" in fact and "child" not in fact)
    return {**found, **{f"failures/{boundary}": failures[boundary] for boundary in get_args(Boundary)}}


def _failures(episode: Episode) -> Iterator[str]:
    """Yield the boundaries at which an episode's turns failed, and its own end where no turn holds that."""
    in_turns = [turn.failure for turn in episode.turns if turn.failure is not None]
    yield from (failure.boundary for failure in in_turns)
    if episode.failure is not None and episode.failure not in in_turns:
        yield episode.failure.boundary
