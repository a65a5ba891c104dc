"""Watching a run without changing it."""

from collections.abc import Callable
from typing import Any

from agentgym_tok.errors import ConfigError
from agentgym_tok.trace import Edge, Episode, Turn

__all__ = ["Observer", "observer_of"]

_HOOKS = ("on_turn", "on_edge", "on_episode")


class Observer:
    """Watch what a harness logs: override what you want to see, or pass functions.

    The calls come from the loop that drives all episodes, after the store has what they tell of. An observer that
    raises ends the run, so what may fail should be caught by whoever watches.

    Args:
        on_turn: Called in the place of the method, as the others are.
        on_edge: See above.
        on_episode: See above.
    """

    def __init__(
        self,
        *,
        on_turn: Callable[[Turn], object] | None = None,
        on_edge: Callable[[Edge, Turn], object] | None = None,
        on_episode: Callable[[Episode], object] | None = None,
    ) -> None:
        given = {"on_turn": on_turn, "on_edge": on_edge, "on_episode": on_episode}
        vars(self).update({name: function for name, function in given.items() if function is not None})

    def on_turn(self, turn: Turn) -> None:
        """See an attempt at a turn, used or not, of a rollout or a subagent."""

    def on_edge(self, edge: Edge, turn: Turn) -> None:
        """See that a turn's context is no plain continuation: a rewrite, a retry, a fresh prompt."""

    def on_episode(self, episode: Episode) -> None:
        """See the end of a rollout, its subagents included."""


def observer_of(watcher: Any) -> Observer:
    """Return an observer as it is, and one that calls the hooks of any object that has some of them.

    Raises:
        ConfigError: The object has none.
    """
    if isinstance(watcher, Observer):
        return watcher
    hooks = {name: getattr(watcher, name) for name in _HOOKS if callable(getattr(watcher, name, None))}
    if not hooks or isinstance(watcher, type):
        raise ConfigError(
            "this observes nothing",
            where="Harness, observers",
            got=repr(watcher)[:80],
            expected=f"an object with some of {', '.join(_HOOKS)}",
            fix="pass a function as Observer(on_episode=function)",
        )
    return Observer(**hooks)
