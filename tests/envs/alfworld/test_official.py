import json
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.official import OfficialGames
from agentgym_tok.errors import DataCorrupt, DataMissing, UnknownName

WriteGame = Callable[..., Path]


@pytest.fixture
def tree(write_game: WriteGame, tmp_path: Path) -> Path:
    """Write a folder with two splits, and with what ALFWorld leaves out."""
    root = tmp_path / "json_2.1.1"
    for trial in ("train/pick-B/trial_2", "train/pick-B/trial_1", "train/pick-A/trial_9", "valid_seen/pick-A/trial_1"):
        write_game(root / trial)
    write_game(root / "train" / "pick_and_place_with_movable_recep-Mug-Pot-Desk-1" / "trial_1")
    write_game(root / "train" / "pick-AppleSliced-None-Desk-1" / "trial_1")
    (root / "train" / "pick-C" / "trial_without_game").mkdir(parents=True)
    (root / "train" / "README").write_text("not a folder")
    return tmp_path


def test_tasks_are_sorted_and_only_those_that_alfworld_plays(tree: Path) -> None:
    games = OfficialGames("train", tree)
    assert games.source == "ALFWorld"
    assert list(games.tasks()) == ["train/pick-A/trial_9", "train/pick-B/trial_1", "train/pick-B/trial_2"]


@pytest.mark.parametrize("name", [".", "json_2.1.1"])
def test_the_folder_is_the_one_that_holds_the_splits_or_the_one_above(tree: Path, name: str) -> None:
    assert len(OfficialGames("train", tree / name).tasks()) == 3


def test_a_folder_of_a_later_release_is_found_where_the_first_has_no_games(tree: Path) -> None:
    (tree / "json_2.1.1").rename(tree / "json_2.1.2")
    (tree / "json_2.1.1" / "train" / "pick-A" / "trial_9").mkdir(parents=True)
    assert len(OfficialGames("train", tree).tasks()) == 3


def test_the_environment_variable_names_the_folder(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tree))
    assert len(OfficialGames("valid_seen").tasks()) == 1
    monkeypatch.delenv("ALFWORLD_DATA")
    with pytest.raises(DataMissing, match=r"agentgym-tok data get alfworld.*ALFWORLD_DATA"):
        OfficialGames("valid_seen")


@pytest.mark.parametrize("name", ["nowhere", "json_2.1.1/train/pick-A"])
def test_a_folder_without_the_games_says_what_to_do(tree: Path, name: str) -> None:
    with pytest.raises(DataMissing, match="agentgym-tok data get alfworld") as caught:
        OfficialGames("train", tree / name)
    assert caught.value.where == tree / name


def test_a_split_that_is_not_there_is_missing_and_one_that_does_not_exist_is_unknown(tree: Path) -> None:
    with pytest.raises(DataMissing, match="valid_unseen"):
        OfficialGames("valid_unseen", tree)
    with pytest.raises(UnknownName, match="did you mean valid_unseen"):
        OfficialGames("valid_unsen", tree)


@pytest.mark.parametrize(
    "task", ["train/pick-A/trial_8", "train/pick-A", "valid_seen/pick-A/trial_1", "train/pick-C/trial_without_game", ""]
)
def test_an_unknown_task_is_named(tree: Path, task: str) -> None:
    with pytest.raises(UnknownName) as caught:
        OfficialGames("train", tree).game(task)
    assert repr(task) in str(caught.value)


def test_games_are_read_when_asked_for_and_kept(tree: Path) -> None:
    games = OfficialGames("train", tree)
    bad = tree / "json_2.1.1" / "train" / "pick-B" / "trial_1" / "game.tw-pddl"
    bad.write_text("{")
    game = games.game("train/pick-A/trial_9")
    assert game.task == "train/pick-A/trial_9"
    assert games.game("train/pick-A/trial_9") is game
    with pytest.raises(DataCorrupt) as caught:
        games.game("train/pick-B/trial_1")
    assert caught.value.where == bad


def test_only_the_last_games_are_kept(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_tok.envs.alfworld.official._KEPT", 2)
    games = OfficialGames("train", tree)
    first, second, third = games.tasks()
    kept = games.game(first)
    games.game(second)
    assert games.game(first) is kept
    games.game(third)
    assert games.game(first) is kept
    assert len(games._kept) == 2


def test_a_pickled_set_is_small_and_offers_the_same(tree: Path) -> None:
    games = OfficialGames("train", tree)
    game = games.game(games.tasks()[0])
    packed = pickle.dumps(games)
    twin = pickle.loads(packed)
    assert len(packed) < 1_000
    assert twin.tasks() == games.tasks()
    assert twin.game(game.task) == game


def test_the_official_splits_have_the_published_sizes_and_kinds(official: Path) -> None:
    counts = {}
    for split in ("valid_seen", "valid_unseen", "valid_train"):
        tasks = OfficialGames(split, official).tasks()
        counts[split] = (
            len(tasks),
            Counter(task.split("/")[1].split("-")[0] for task in tasks)["pick_two_obj_and_place"],
        )
    assert counts == {"valid_seen": (140, 24), "valid_unseen": (134, 17), "valid_train": (200, 45)}


def test_the_goal_of_an_official_game_is_the_one_its_folder_names(official: Path) -> None:
    games = OfficialGames("valid_unseen", official)
    for task in games.tasks():
        kind, wanted, _, target, _ = task.split("/")[1].split("-")
        game = games.game(task)
        assert (game.task_type, game.goal_object, game.goal_target) == (kind, wanted.lower(), target.lower())


def test_every_official_game_has_human_goals(official: Path) -> None:
    games = OfficialGames("valid_seen", official)
    for task in games.tasks():
        goals = games.goals(task)
        assert len(goals) >= 3
        assert all(goal and goal == " ".join(goal.split()) for goal in goals)
    assert games.goals(games.tasks()[5]) == games.game(games.tasks()[5]).goals
    engine = ALFWorldEngine(games, goal="human")
    assert len(engine.tasks()) >= 3 * len(games.tasks())
    path = games.root / games.tasks()[5] / "traj_data.json"
    described = json.loads(path.read_text())["turk_annotations"]["anns"][1]["task_desc"]
    assert engine.reset(f"{games.tasks()[5]}#1").text.endswith(f"Your task is to: {' '.join(described.split())}")
