"""Watching a run without changing it."""

from agentgym_tok.trace import Edge, Episode, Turn

__all__ = ["Observer"]


class Observer:
    """Watch what a harness logs; override what you want to see.

    The calls come from the loop that drives all episodes, after the store has what they tell of. An observer that
    raises ends the run, so what may fail should be caught by whoever watches.
    """

    def on_turn(self, turn: Turn) -> None:
        """See an attempt at a turn, used or not, of a rollout or a subagent."""

    def on_edge(self, edge: Edge, turn: Turn) -> None:
        """See that a turn's context is no plain continuation: a rewrite, a retry, a fresh prompt."""

    def on_episode(self, episode: Episode) -> None:
        """See the end of a rollout, its subagents included."""
