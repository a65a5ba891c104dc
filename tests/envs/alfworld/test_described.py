"""Each goal that a person wrote is a task of its own, in the room and under the rules of its game."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld import ALFWorldEngine, Game, SingleGame, SynthGames
from agentgym_tok.envs.alfworld.described import DescribedGames
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import DataMissing, UnknownName


@pytest.fixture
def described(write_game: Callable[..., Path], tmp_path: Path) -> DescribedGames:
    annotations = [{"task_desc": "Store fruit. "}, {"task_desc": "Put an apple\naway"}]
    (tmp_path / "traj_data.json").write_text(json.dumps({"turk_annotations": {"anns": annotations}}))
    return DescribedGames(SingleGame(Game.from_file(write_game(tmp_path), task="kitchen")))


def test_a_game_differs_in_its_task_line_and_in_nothing_else(described: DescribedGames) -> None:
    first, second = map(described.game, described.tasks())
    assert (first.task, second.task) == described.tasks() == ("kitchen#0", "kitchen#1")
    assert first.task_line == "Your task is to: Store fruit."
    assert second.task_line == "Your task is to: Put an apple away"
    assert first.room is second.room
    assert first.walkthrough == second.walkthrough
    assert described.source == "ALFWorld-file"


def test_an_id_without_a_number_means_the_first_goal(described: DescribedGames) -> None:
    assert described.game("kitchen") == described.game("kitchen#0")
    assert described.goals("kitchen#1") == described.goals("kitchen") == ("Store fruit.", "Put an apple away")


def test_the_games_own_tasks_may_stand_among_them(described: DescribedGames) -> None:
    both = DescribedGames(described._games, own=True)
    assert both.tasks() == ("kitchen", "kitchen#0", "kitchen#1")
    assert both.game("kitchen").task_line == 'Your task is to: put some "apple" on cabinet.'
    assert both.game("kitchen#1") == described.game("kitchen#1")
    with pytest.raises(DataMissing):
        DescribedGames(SynthGames("valid_seen"), own=True).tasks()


@pytest.mark.parametrize("wrong", ["kitchen#2", "kitchen#-1", "kitchen#x", "kitchen#00", "kitchen#", "bath#0"])
def test_an_unknown_goal_is_named(described: DescribedGames, wrong: str) -> None:
    with pytest.raises(UnknownName):
        described.game(wrong)


def test_games_that_nobody_described_are_refused_with_the_way_to_their_goals() -> None:
    games = DescribedGames(SynthGames("valid_seen"))
    for wrong in (games.tasks, lambda: games.game(SynthGames("valid_seen").tasks()[0])):
        with pytest.raises(DataMissing, match="data get alfworld --goals"):
            wrong()


def test_some_games_without_goals_are_no_smaller_benchmark() -> None:
    class Half:
        source = "half"

        def tasks(self) -> tuple[str, ...]:
            return ("a", "b")

        def goals(self, task: str) -> tuple[str, ...]:
            return ("Store fruit.",) if task == "a" else ()

    for own in (False, True):
        with pytest.raises(DataMissing, match="1 of 2 games without goals, such as b"):
            DescribedGames(Half(), own=own).tasks()  # type: ignore[arg-type]


def test_a_goal_has_one_name_by_whichever_it_was_asked_for(described: DescribedGames) -> None:
    engine = ALFWorldEngine(described._games, goal="human")
    for name in ("kitchen", "kitchen#0", None):
        engine.reset(name)
        assert engine.task_info()["task"] == "kitchen#0"


def test_a_named_game_is_played_without_listing_the_goals_of_others(
    described: DescribedGames, builtin: ChatFormat
) -> None:
    class Unlisted(ALFWorldEngine):
        def tasks(self) -> tuple[str, ...]:
            raise AssertionError

    env = TokenEnv(Unlisted(described._games, goal="human"), builtin)
    _, info = env.reset(options={"task": "kitchen#1"})
    assert info["task"] == "kitchen#1"


def test_a_copy_lists_the_same_goals(described: DescribedGames) -> None:
    tasks = described.tasks()
    copied = pickle.loads(pickle.dumps(described))
    assert copied.tasks() == tasks
    assert len(pickle.dumps(described)) == len(pickle.dumps(copied))
