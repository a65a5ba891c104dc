"""Observers: a class, any object with some of the hooks, or functions."""

from typing import Any

import pytest
from play import CHAT, Lines, acts, make_env

from agentgym_tok.errors import ConfigError
from agentgym_tok.harness import Harness, Observer, Retries
from agentgym_tok.trace import Edge, Episode, Turn


def watched(*observers: object) -> Episode:
    policy = Lines(acts("fly"), acts("look"), acts("look"))
    harness = Harness(policy, CHAT, retries=Retries(invalid_action=1), observers=observers)
    return harness.run(make_env(max_steps=2), task=0)


def test_functions_see_what_methods_see() -> None:
    class Watch(Observer):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def on_turn(self, turn: Turn) -> None:
            self.seen.append(turn)

        def on_edge(self, edge: Edge, turn: Turn) -> None:
            self.seen.append((edge.kind, turn))

        def on_episode(self, episode: Episode) -> None:
            self.seen.append(episode)

    watch, seen = Watch(), list[Any]()
    functions = Observer(
        on_turn=seen.append,
        on_edge=lambda edge, turn: seen.append((edge.kind, turn)),
        on_episode=seen.append,
    )
    episode = watched(watch, functions)
    assert watch.seen == seen
    first, second, third = episode.turns
    assert seen == [first, ("fresh_prompt", first), second, ("retry", second), third, episode]


def test_any_object_with_one_of_the_hooks_observes() -> None:
    class Counter:
        turns = 0

        def on_turn(self, turn: Turn) -> None:
            self.turns += 1

    counter = Counter()
    assert len(watched(counter, Observer()).turns) == counter.turns == 3


@pytest.mark.parametrize("wrong", [print, object(), "observer", Observer, None])
def test_what_observes_nothing_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="observes nothing"):
        watched(wrong)


def test_an_observer_that_raises_ends_the_run() -> None:
    def fail(_: Turn) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watched(Observer(on_turn=fail))
