import json
import sys
from pathlib import Path

import pytest

from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.game import Game
from agentgym_tok.envs.alfworld.official import OfficialGames
from agentgym_tok.envs.alfworld.problem import TASK_TYPES
from agentgym_tok.envs.alfworld.synth import SynthGames
from agentgym_tok.envs.alfworld.synth_tasks import SPLITS, synth_tasks
from agentgym_tok.envs.alfworld.textworld import StockEngine
from agentgym_tok.envs.alfworld.write_games import write_games
from agentgym_tok.errors import ConfigError, MissingExtra, UnknownName


def parts_of(game: Game) -> dict[str, object]:
    return {
        name: getattr(game, name)
        for name in ("task_type", "task_line", "goal_object", "goal_target", "walkthrough", "room")
    }


@pytest.mark.parametrize("split", SPLITS)
def test_written_games_read_back_equal_through_the_reader_of_official_ones(tmp_path: Path, split: str) -> None:
    written = write_games(tmp_path, split, 12)
    made, read = SynthGames(split), OfficialGames(split, tmp_path)
    assert len(read.tasks()) == len(written) == 12
    for task, path in zip(made.tasks(), written, strict=False):
        again = read.game(path.parent.relative_to(tmp_path / "json_2.1.1").as_posix())
        assert parts_of(again) == parts_of(made.game(task))


def test_a_whole_split_is_written_by_default(tmp_path: Path) -> None:
    assert len(write_games(tmp_path, "valid_unseen")) == 134


def test_files_have_the_official_layout_keys_and_form(tmp_path: Path) -> None:
    for path in write_games(tmp_path, "train", 8):
        text = path.read_text(encoding="utf-8")
        assert text.isascii()
        assert "\n" not in text
        game, traj = json.loads(text), json.loads(path.with_name("traj_data.json").read_bytes())
        assert list(game) == ["pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"]
        root, split, folder, trial, name = path.relative_to(tmp_path).parts
        assert (root, split, name) == ("json_2.1.1", "train", "game.tw-pddl")
        task_type, thing, nothing, target, plan = folder.split("-")
        assert (traj["task_id"], traj["task_type"], nothing) == (trial, task_type, "None")
        assert traj["scene"] == {"floor_plan": f"FloorPlan{plan}", "scene_num": int(plan)}
        params = traj["pddl_params"]
        assert (params["object_target"], params["parent_target"] or params["toggle_target"]) == (thing, target)
        assert bool(params["toggle_target"]) == (task_type == "look_at_obj_in_light")
        assert f"(problem plan_{trial})" in game["pddl_problem"]


def test_writing_again_changes_nothing_and_more_games_join(tmp_path: Path) -> None:
    first = write_games(tmp_path, "train", 3)
    times = [path.stat().st_mtime_ns for path in first]
    assert write_games(tmp_path, "train", 3) == first
    assert write_games(tmp_path, "train", 5)[:3] == first
    assert [path.stat().st_mtime_ns for path in first] == times
    write_games(tmp_path, "valid_seen", 2)
    assert len(OfficialGames("valid_seen", tmp_path).tasks()) == 2


def test_other_games_in_the_folder_are_never_mixed_with_or_overwritten(tmp_path: Path) -> None:
    path = write_games(tmp_path, "train", 2)[0]
    with pytest.raises(ConfigError, match="the folder holds other games"):
        write_games(tmp_path, "train", 1)
    kept = path.read_bytes()
    path.write_bytes(kept[:-1])
    with pytest.raises(ConfigError, match=r"game\.tw-pddl"):
        write_games(tmp_path, "train", 2)
    assert path.read_bytes() == kept[:-1]

    official = tmp_path / "official/json_2.1.1/valid_seen/kind/trial_T20190909_044715_250790/game.tw-pddl"
    official.parent.mkdir(parents=True)
    official.write_text("{}")
    with pytest.raises(ConfigError, match="trial_T20190909_044715_250790"):
        write_games(tmp_path / "official", "train", 1)
    assert [path for path in (tmp_path / "official").rglob("*") if path.is_file()] == [official]


@pytest.mark.parametrize("count", [0, -1, 141])
def test_a_count_beyond_the_split_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ConfigError, match="1 to 140"):
        write_games(tmp_path, "valid_seen", count)
    assert not list(tmp_path.iterdir())


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean train"):
        write_games(tmp_path, "trian", 1)


def test_stock_files_without_the_package_name_the_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "alfworld", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agentgym-tok\[alfworld\]'"):
        write_games(tmp_path, "train", 1, stock=True)
    assert not list(tmp_path.iterdir())


FIRST_OF_EACH_TYPE = [
    next(task.index for task in synth_tasks("valid_unseen") if task.task_type == task_type) for task_type in TASK_TYPES
]


def looks_and_doors(admissible: tuple[str, ...], number: int) -> list[str]:
    """Return commands around a step of the walkthrough that leave the next one possible."""
    looks = [command for command in admissible if command.split()[0] in {"examine", "help", "inventory", "look"}]
    doors = [command for command in admissible if command.split()[0] in {"close", "open"}]
    back = [door.replace("open", "close") if "open" in door else door.replace("close", "open") for door in doors]
    return ["no such command", looks[number % len(looks)], *doors[:1], *back[:1]]


@pytest.mark.stock
@pytest.mark.parametrize("index", FIRST_OF_EACH_TYPE)
def test_the_stock_engine_plays_a_written_game_in_lockstep(tmp_path: Path, index: int) -> None:
    pytest.importorskip("alfworld", reason="needs the extra alfworld")
    path = write_games(tmp_path, "valid_unseen", index + 1, stock=True)[index]
    engines = StockEngine.from_file(path), ALFWorldEngine(SynthGames("valid_unseen"))
    task = SynthGames("valid_unseen").tasks()[index]

    seen = [engines[0].reset(), engines[1].reset(task)]
    assert seen[0] == seen[1]
    for number, step in enumerate(SynthGames("valid_unseen").game(task).walkthrough):
        for command in (*looks_and_doors(seen[1].admissible_commands, number), step):
            seen = [engine.step(command) for engine in engines]
            assert seen[0] == seen[1], command
    assert seen[1].success
