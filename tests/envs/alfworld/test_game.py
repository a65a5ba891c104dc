import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.alfworld.game import Game, SingleGame
from agentgym_tok.errors import DataCorrupt, DataMissing, UnknownName

MakeGame = Callable[..., Game]
WriteGame = Callable[..., Path]


def test_a_game_file_gives_task_goal_and_walkthrough(write_game: WriteGame, tmp_path: Path) -> None:
    path = write_game(tmp_path / "train" / "pick_and_place_simple-Apple-None-Cabinet-1" / "trial_1")
    game = Game.from_file(path)
    assert game.task == "train/pick_and_place_simple-Apple-None-Cabinet-1/trial_1"
    assert game.task_line == 'Your task is to: put some "apple" on cabinet.'
    assert (game.task_type, game.goal_object, game.goal_target) == ("pick_and_place_simple", "apple", "cabinet")
    assert game.walkthrough[-1] == "move apple 1 to cabinet 1"
    assert game.gamefile == path
    assert Game.from_file(str(path), task="mine").task == "mine"


def test_a_game_from_its_parts_equals_the_one_from_its_file(
    write_game: WriteGame, kitchen_parts: dict[str, Any], tmp_path: Path
) -> None:
    read = Game.from_file(write_game(tmp_path), task="kitchen")
    made = Game.from_problem(
        kitchen_parts["pddl_problem"],
        task_text=read.task_line,
        walkthrough=kitchen_parts["walkthrough"],
        task="kitchen",
        gamefile=read.gamefile,
    )
    assert made == read


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="agentgym-tok data get alfworld") as caught:
        Game.from_file(tmp_path / "game.tw-pddl")
    assert caught.value.where == tmp_path / "game.tw-pddl"


@pytest.mark.parametrize(
    "changes",
    [
        {"pddl_problem": None},
        {"grammar": 3},
        {"walkthrough": "go to desk 1"},
        {"walkthrough": ["go to desk 1", 2]},
        {"solvable": False},
        {"grammar": 'action PutObject { template :: "move {o} to {r}"; }'},
        {"grammar": '"task": [{"rhs": "Your task is \\x"}] move {o} to {r}'},
        {"pddl_problem": "(define (problem p))"},
    ],
)
def test_a_changed_file_is_refused_with_file_finding_and_next_step(
    write_game: WriteGame, tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = write_game(tmp_path, **changes)
    with pytest.raises(DataCorrupt) as caught:
        Game.from_file(path)
    assert caught.value.where == path
    assert caught.value.got
    assert caught.value.expected
    assert caught.value.fix


def test_a_file_of_an_older_release_is_refused(
    write_game: WriteGame, kitchen_parts: dict[str, Any], tmp_path: Path
) -> None:
    older = kitchen_parts["grammar"].replace("move {o} to {r}", "put {o} in/on {r}")
    with pytest.raises(DataCorrupt, match="older ALFWorld release"):
        Game.from_file(write_game(tmp_path, grammar=older))


@pytest.mark.parametrize("content", [b"", b"[]", b"nonsense", b"\xff\xfe\x00", b'{"grammar": '])
def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_bytes(content)
    with pytest.raises(DataCorrupt) as caught:
        Game.from_file(path)
    assert caught.value.where == path


def test_a_truncated_file_is_refused_wherever_it_ends(write_game: WriteGame, tmp_path: Path) -> None:
    text = write_game(tmp_path).read_text()
    for end in range(0, len(text), 97):
        with pytest.raises(DataCorrupt):
            Game.from_json(text[:end], task="kitchen")


def test_human_goals_stand_beside_the_game_file(write_game: WriteGame, tmp_path: Path) -> None:
    game = Game.from_file(write_game(tmp_path))
    assert game.goals == ()
    annotations = [{"task_desc": "Put an apple\nin a  cabinet. "}, {"task_desc": "store fruit"}]
    (tmp_path / "traj_data.json").write_text(json.dumps({"turk_annotations": {"anns": annotations}}))
    assert game.goals == ("Put an apple in a cabinet.", "store fruit")


def test_a_game_without_a_file_has_no_human_goals(kitchen: MakeGame) -> None:
    assert kitchen().goals == ()


@pytest.mark.parametrize(
    "content", ["", "{}", '{"turk_annotations": {"anns": [{}]}}', '{"turk_annotations": {"anns": 3}}']
)
def test_broken_annotations_are_refused_by_name(write_game: WriteGame, tmp_path: Path, content: str) -> None:
    game = Game.from_file(write_game(tmp_path))
    (tmp_path / "traj_data.json").write_text(content)
    with pytest.raises(DataCorrupt) as caught:
        _ = game.goals
    assert caught.value.where == tmp_path / "traj_data.json"


def test_a_walkthrough_is_followed_through_idle_commands_and_left_for_good(kitchen: MakeGame) -> None:
    game = kitchen()
    first, second, *_ = game.walkthrough
    done = game.follow(game.follow(0, first, changed=True), "look", changed=False)
    assert game.next_command(done) == second
    away = game.follow(done, "go to fridge 1", changed=True)
    assert game.next_command(away) is None
    assert game.next_command(game.follow(away, second, changed=True)) is None
    assert game.next_command(len(game.walkthrough)) is None


def test_a_game_pickles_equal_and_small(kitchen: MakeGame) -> None:
    game = kitchen()
    packed = pickle.dumps(game)
    assert pickle.loads(packed) == game
    assert len(packed) < 8_000


def test_a_single_game_offers_itself_only(kitchen: MakeGame) -> None:
    games = SingleGame(kitchen())
    assert list(games.tasks()) == ["kitchen"]
    assert games.game("kitchen") is games.only
    with pytest.raises(UnknownName, match="did you mean kitchen"):
        games.game("kitchn")
