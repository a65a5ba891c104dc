"""Groups that have nothing to compare are replaced by others, as often as is allowed."""

import pytest
from two_buttons import CHAT, changed, make_env

from agentgym_tok.harness import Harness
from agentgym_tok.harness.blocking import run_blocking
from agentgym_tok.learner.training.rollouts import Played, Rollouts, task_ids
from agentgym_tok.trace import Episode


def play(redraw: int, step: int = 0) -> Played:
    config = changed(tasks=8, group_size=2, redraw=redraw)
    rollouts = Rollouts(config, make_env, task_ids(make_env)[0])
    return run_blocking(rollouts.of(Harness("random", CHAT), step))


def groups(episodes: "list[Episode] | tuple[Episode, ...]") -> dict[str, set[float]]:
    found: dict[str, set[float]] = {}
    for episode in episodes:
        found.setdefault(episode.group_id, set()).add(episode.return_)
    return found


@pytest.mark.parametrize("redraw", [1, 2, 20])
def test_only_groups_that_differ_are_kept_and_no_more_than_were_asked_for(redraw: int) -> None:
    played = play(redraw)
    kept, every = groups([*played.kept]), groups([*played.all])
    assert all(len(returns) == 2 for returns in kept.values())
    assert kept == {name: returns for name, returns in every.items() if len(returns) == 2}
    assert len(kept) <= 8 < len(every)
    assert len(kept) == 8 or redraw < 20


def test_without_redrawing_every_group_is_kept() -> None:
    played = play(0)
    assert [*played.kept] == [*played.all]
    assert len(groups([*played.kept])) == 8


def test_steps_play_with_seeds_of_their_own() -> None:
    first, second = (play(0, step) for step in (0, 1))
    assert groups([*first.all]).keys().isdisjoint(groups([*second.all]))
