import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.game import Game, SingleGame
from agentgym_tok.envs.alfworld.official import OfficialGames
from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.errors import DataMissing, ResetNeeded, UnknownName

MakeGame = Callable[..., Game]
WriteGame = Callable[..., Path]

# Which of the commands that are admissible then: sequences of these say what a player does.
CHOICES = st.lists(st.integers(0, 2**16), max_size=40)


class Games:
    source = "two kitchens"

    def __init__(self, *games: Game) -> None:
        self._games = {game.task: game for game in games}

    def tasks(self) -> Sequence[str]:
        return list(self._games)

    def game(self, task: str) -> Game:
        return self._games[task]


@pytest.fixture
def engine(kitchen: MakeGame) -> ALFWorldEngine:
    return ALFWorldEngine(SingleGame(kitchen()))


def play(engine: ALFWorldEngine, choices: Sequence[int]) -> list[TextObservation]:
    """Play what `choices` pick among the admissible commands, from the present state on."""
    seen: list[TextObservation] = []
    for choice in choices:
        if seen and seen[-1].terminated:
            break
        admissible = engine.clone().step("look").admissible_commands
        seen.append(engine.step(admissible[choice % len(admissible)]))
    return seen


def test_it_is_a_text_engine_that_says_its_source(engine: ALFWorldEngine) -> None:
    assert isinstance(engine, TextEngine)
    assert engine.source == "ALFWorld-file"
    assert list(engine.tasks()) == ["kitchen"]


def test_reset_welcomes_shows_the_room_and_states_the_task(engine: ALFWorldEngine) -> None:
    seen = engine.reset()
    first, room, task = seen.text.split("\n\n")
    assert first == "-= Welcome to TextWorld, ALFRED! =-"
    assert room.startswith("You are in the middle of a room. Looking quickly around you, you see a bathtubbasin 2,")
    assert task == "Your task is to: put some apple on cabinet."
    assert (seen.reward, seen.terminated, seen.success, seen.valid) == (0.0, False, False, None)
    assert "look" in seen.admissible_commands
    assert list(seen.admissible_commands) == sorted(set(seen.admissible_commands))


def test_admissible_commands_are_in_code_point_order(engine: ALFWorldEngine) -> None:
    engine.reset()
    engine.step("go to countertop 1")
    seen = engine.step("take apple 1 from countertop 1")
    assert seen.admissible_commands == (
        "examine apple 1",
        "examine countertop 1",
        "go to bathtubbasin 1",
        "go to bathtubbasin 2",
        "go to cabinet 1",
        "go to cabinet 2",
        "go to drawer 1",
        "go to fridge 1",
        "go to microwave 1",
        "go to sidetable 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
        "move apple 1 to countertop 1",
    )


@pytest.mark.parametrize("command", ["", "LOOK", "go to  fridge 1", "Go to fridge 1", "open fridge 1", "put a in b"])
def test_what_is_not_admissible_changes_nothing_and_says_so(engine: ALFWorldEngine, command: str) -> None:
    before = engine.reset()
    seen = engine.step(command)
    assert (seen.text, seen.valid, seen.reward) == ("Nothing happens.", False, 0.0)
    assert seen.admissible_commands == before.admissible_commands


def test_blanks_around_a_command_do_not_matter(engine: ALFWorldEngine) -> None:
    engine.reset()
    assert engine.step("\n  go to fridge 1 \t").text == "You arrive at fridge 1. The fridge 1 is closed."


def test_the_first_win_is_rewarded_and_ends_the_episode(engine: ALFWorldEngine, kitchen: MakeGame) -> None:
    engine.reset()
    *seen, last = [engine.step(command) for command in kitchen().walkthrough]
    assert {(s.reward, s.terminated, s.success, s.valid) for s in seen} == {(0.0, False, False, True)}
    assert (last.reward, last.terminated, last.success, last.valid) == (1.0, True, True, True)
    with pytest.raises(ResetNeeded, match="reset"):
        engine.step("look")
    engine.reset()
    assert engine.step("look").valid


def test_a_step_before_the_first_reset_is_refused(engine: ALFWorldEngine) -> None:
    with pytest.raises(ResetNeeded):
        engine.step("look")
    with pytest.raises(ResetNeeded):
        engine.task_info()
    assert engine.expert_command() is None


def test_reset_without_a_task_starts_the_current_one_again_or_the_first(kitchen: MakeGame) -> None:
    engine = ALFWorldEngine(Games(kitchen(task="one"), kitchen("look_at_obj_in_light", task="two")))
    engine.reset()
    info = engine.task_info()
    assert info == {"task": "one", "task_type": "pick_and_place_simple", "goal": "put some apple on cabinet."}
    engine.reset("two")
    engine.step("go to fridge 1")
    engine.reset()
    assert (engine.task_info()["task"], engine.task_info()["task_type"]) == ("two", "look_at_obj_in_light")
    assert engine.step("look").text.startswith("You are in the middle of a room.")


def test_a_refused_reset_leaves_the_episode_alone(engine: ALFWorldEngine) -> None:
    engine.reset()
    engine.step("go to fridge 1")
    with pytest.raises(UnknownName):
        engine.reset("kitchn")
    assert engine.step("look").text == "You are facing the fridge 1. Next to it, you see nothing."


def test_the_expert_wins_and_waits_for_idle_commands(engine: ALFWorldEngine, kitchen: MakeGame) -> None:
    engine.reset()
    for command in kitchen().walkthrough:
        for idle in ("look", "inventory", "help", "no such command"):
            engine.step(idle)
        assert engine.expert_command() == command
        seen = engine.step(command)
    assert seen.success
    assert engine.expert_command() is None


def test_the_expert_knows_no_way_from_elsewhere(engine: ALFWorldEngine) -> None:
    engine.reset()
    engine.step("go to fridge 1")
    assert engine.expert_command() is None
    engine.step("go to countertop 1")
    assert engine.expert_command() is None
    engine.reset()
    assert engine.expert_command() == "go to countertop 1"


@pytest.mark.parametrize("word", ["in/on", "in", "on"])
def test_put_is_an_alias_of_move_where_it_was_asked_for(kitchen: MakeGame, word: str) -> None:
    engine = ALFWorldEngine(SingleGame(kitchen()), put_alias=True)
    engine.reset()
    for command in kitchen().walkthrough[:3]:
        engine.step(command)
    seen = engine.step(f"put apple 1 {word} cabinet 1")
    assert (seen.text, seen.success) == ("You move the apple 1 to the cabinet 1.", True)


@pytest.mark.parametrize(
    "command", ["put apple 1 cabinet 1", "please put apple 1 in cabinet 1", "put apple 1 under cabinet 1"]
)
def test_the_alias_accepts_nothing_else(kitchen: MakeGame, command: str) -> None:
    engine = ALFWorldEngine(SingleGame(kitchen()), put_alias=True)
    engine.reset()
    for step in kitchen().walkthrough[:3]:
        engine.step(step)
    assert engine.step(command).text == "Nothing happens."


def test_put_is_unknown_by_default(engine: ALFWorldEngine, kitchen: MakeGame) -> None:
    engine.reset()
    for command in kitchen().walkthrough[:3]:
        engine.step(command)
    assert engine.step("put apple 1 in/on cabinet 1").text == "Nothing happens."


@pytest.fixture
def annotated(write_game: WriteGame, tmp_path: Path) -> Path:
    annotations = [{"task_desc": "Store fruit. "}, {"task_desc": "Put an apple\naway"}]
    (tmp_path / "traj_data.json").write_text(json.dumps({"turk_annotations": {"anns": annotations}}))
    return write_game(tmp_path)


def test_a_human_goal_replaces_the_task_line_and_nothing_else(annotated: Path) -> None:
    template = ALFWorldEngine.from_file(annotated).reset()
    engine = ALFWorldEngine.from_file(annotated, goal="human")
    human = engine.reset()
    assert human.text == template.text.replace('put some "apple" on cabinet.', "Store fruit.")
    assert human.admissible_commands == template.admissible_commands
    assert engine.task_info()["gamefile"] == str(annotated)


def test_the_task_id_chooses_among_human_goals(annotated: Path) -> None:
    engine = ALFWorldEngine.from_file(annotated, goal="human")
    (task,) = ALFWorldEngine.from_file(annotated).tasks()
    assert engine.tasks() == (f"{task}#0", f"{task}#1")
    assert engine.reset().text.endswith("Store fruit.")
    assert engine.reset(f"{task}#1").text.endswith("Your task is to: Put an apple away")
    assert engine.task_info()["task"] == f"{task}#1"
    assert engine.reset().text.endswith("Put an apple away")
    assert engine.reset(task).text.endswith("Store fruit.")
    for wrong in ("#2", "#-1", "#x"):
        with pytest.raises(UnknownName, match="human goal"):
            engine.reset(task + wrong)


def test_an_engine_may_offer_both_kinds_of_goals(annotated: Path) -> None:
    engine = ALFWorldEngine.from_file(annotated, goal="both")
    own, first, second = engine.tasks()
    assert engine.reset(own).text == ALFWorldEngine.from_file(annotated).reset().text
    assert engine.task_info()["goal"] == 'put some "apple" on cabinet.'
    assert (engine.reset(first).text[-12:], engine.reset(second).text[-4:]) == ("Store fruit.", "away")


def test_a_game_that_nobody_described_has_no_human_goal(kitchen: MakeGame) -> None:
    with pytest.raises(DataMissing, match="template"):
        ALFWorldEngine(SingleGame(kitchen()), goal="human").reset()


def test_an_unknown_kind_of_goal_is_named(kitchen: MakeGame) -> None:
    with pytest.raises(UnknownName, match="did you mean human"):
        ALFWorldEngine(SingleGame(kitchen()), goal="humann")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def official_engine(official: Path) -> ALFWorldEngine:
    return ALFWorldEngine(OfficialGames("valid_seen", official))


TASKS = st.integers(0, 139)


@settings(max_examples=60, deadline=None)
@given(task=TASKS, before=CHOICES, ours=CHOICES, theirs=CHOICES)
def test_a_clone_and_its_original_go_on_independently(
    official_engine: ALFWorldEngine, task: int, before: list[int], ours: list[int], theirs: list[int]
) -> None:
    engine = official_engine
    engine.reset(engine.tasks()[task])
    if any(seen.terminated for seen in play(engine, before)):
        return
    twins = [engine.clone() for _ in range(3)]
    first = play(engine, ours)
    play(twins[0], theirs)
    assert play(twins[1], ours) == first
    assert play(pickle.loads(pickle.dumps(twins[2])), ours) == first


@settings(max_examples=60, deadline=None)
@given(task=TASKS, choices=CHOICES)
def test_every_admissible_command_is_accepted_and_no_other(
    official_engine: ALFWorldEngine, task: int, choices: list[int]
) -> None:
    engine = official_engine
    engine.reset(engine.tasks()[task])
    if any(seen.terminated for seen in play(engine, choices)):
        return
    admissible = engine.clone().step("look").admissible_commands
    answers = {command: engine.clone().step(command) for command in admissible}
    assert all(seen.valid and seen.text != "Nothing happens." for seen in answers.values())
    elsewhere = {other for seen in answers.values() for other in seen.admissible_commands} - set(admissible)
    assert all(engine.clone().step(command).valid is False for command in elsewhere)


@settings(max_examples=40, deadline=None)
@given(task=TASKS, choices=CHOICES)
def test_equal_commands_give_equal_transcripts(official_engine: ALFWorldEngine, task: int, choices: list[int]) -> None:
    transcripts: list[Any] = []
    for _ in range(2):
        start = official_engine.reset(official_engine.tasks()[task])
        transcripts.append([start, *play(official_engine, choices)])
    assert transcripts[0] == transcripts[1]


SCRIPT = """
import hashlib, random, sys
from agentgym_tok.envs.alfworld import ALFWorldEngine, OfficialGames
engine = ALFWorldEngine(OfficialGames("valid_unseen", sys.argv[1]))
rng, sha = random.Random(7), hashlib.sha256()
for task in engine.tasks()[::13]:
    seen = engine.reset(task)
    for _ in range(40):
        sha.update(repr(seen).encode())
        if seen.terminated:
            break
        seen = engine.step(rng.choice(seen.admissible_commands))
print(sha.hexdigest())
"""


def test_no_hash_seed_changes_a_transcript(official: Path) -> None:
    digests = set()
    for seed in ("0", "1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SCRIPT, str(official)]
        digests.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(digests) == 1


def test_a_pickled_engine_brings_its_game_along(write_game: WriteGame, tmp_path: Path) -> None:
    path = write_game(tmp_path)
    engine = ALFWorldEngine.from_file(path)
    engine.reset()
    engine.step("go to countertop 1")
    packed = pickle.dumps(engine)
    path.unlink()
    twin = pickle.loads(packed)
    assert twin.step("take apple 1 from countertop 1") == engine.step("take apple 1 from countertop 1")
    assert twin.expert_command() == engine.expert_command() == "go to cabinet 1"
    assert twin.reset() == engine.reset()
