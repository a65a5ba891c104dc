import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.game import Game
from agentgym_tok.envs.alfworld.problem import read_problem
from agentgym_tok.envs.alfworld.problem_writer import SENTENCES
from agentgym_tok.envs.alfworld.synth import SynthGames, synth_problem
from agentgym_tok.envs.alfworld.synth_tasks import SPLITS, SynthTask, synth_tasks
from agentgym_tok.errors import UnknownName

# Scores are comparable while this stands: a change of a table or of a draw makes other games.
DIGEST = "56004cfb032747d2d904882aab3bd789e6a971f279cb25270be55d33fa0c5157"


def digest() -> str:
    sha = hashlib.sha256()
    for task in (*synth_tasks("valid_seen"), *synth_tasks("valid_unseen"), *synth_tasks("train")[:200]):
        problem = synth_problem(task)
        sha.update(repr((task.id, problem.pddl_problem, problem.task_text, problem.walkthrough)).encode())
    return sha.hexdigest()


def play_walkthrough(engine: ALFWorldEngine, task: str, walkthrough: tuple[str, ...]) -> None:
    observation = engine.reset(task)
    assert not observation.success
    for number, command in enumerate(walkthrough, 1):
        assert command in observation.admissible_commands, (task, command)
        observation = engine.step(command)
        assert observation.success == observation.terminated == (number == len(walkthrough)), (task, command)


@pytest.mark.parametrize(("split", "every"), [("valid_seen", 1), ("valid_unseen", 1), ("train", 11)])
def test_a_walkthrough_of_three_to_ten_commands_wins_exactly_with_the_last(split: str, every: int) -> None:
    games = SynthGames(split)
    engine = ALFWorldEngine(games)
    for task in games.tasks()[::every]:
        walkthrough = games.game(task).walkthrough
        assert 3 <= len(walkthrough) <= 10
        play_walkthrough(engine, task, walkthrough)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SPLITS)).flatmap(lambda split: st.sampled_from(synth_tasks(split))))
def test_any_game_is_sound_and_of_official_size(task: SynthTask) -> None:
    problem = synth_problem(task)
    facts, goal = read_problem(problem.pddl_problem)
    things, places = dict(facts["objecttype"]), dict(facts["receptacletype"])
    located, held = dict(facts["receptacleatlocation"]), {}
    for thing, place in facts["inreceptacle"]:
        held.setdefault(thing, place)

    assert 10 <= len(places) <= 40
    assert 20 <= len(things) <= 50
    assert goal == (task.task_type, f"{task.object_target}Type".lower(), f"{task.target}Type".lower())
    # Everything is somewhere, and where it says it is.
    assert set(held) == set(things)
    assert set(located) == set(places)
    assert {thing: located[place] for thing, place in held.items()} == dict(facts["objectatlocation"])
    assert facts["atlocation"][0][1] not in located.values()
    # The goal's objects lie about, and nothing is solved.
    wanted = [thing for thing, kind in things.items() if kind == goal.object_type]
    assert len(wanted) >= 1 + (task.task_type == "pick_two_obj_and_place")
    at_target = [thing for thing in wanted if places[held[thing]] == goal.target_type]
    assert len(at_target) < len(wanted)
    if task.task_type in {"pick_and_place_simple", "pick_two_obj_and_place"}:
        assert not at_target
    assert {thing for thing, _ in facts["iscool"]}.isdisjoint(wanted)


def test_what_a_game_says_follows_from_its_task() -> None:
    for task in synth_tasks("valid_seen"):
        words = {"object": task.object_target.lower(), "target": task.target.lower()}
        said = {f"Your task is to: {form.format(**words)}." for form in SENTENCES[task.task_type]}
        assert synth_problem(task).task_text in said


def test_both_sentences_of_each_kind_of_task_are_used() -> None:
    starts = {
        (task.task_type, form)
        for task in synth_tasks("train")[:300]
        for form in SENTENCES[task.task_type]
        if form.format(object=task.object_target.lower(), target=task.target.lower()) in synth_problem(task).task_text
    }
    assert len(starts) == 12


def test_rooms_have_the_oddities_of_official_ones() -> None:
    facts = [read_problem(synth_problem(task).pddl_problem).facts for task in synth_tasks("train")[:200]]
    assert any(found["iscool"] for found in facts)
    assert any(found["inreceptacleobject"] for found in facts)
    assert any(len(found["inreceptacle"]) > len(found["objecttype"]) for found in facts)
    assert any(
        len(set(found["receptacleatlocation"])) > len({at for _, at in found["receptacleatlocation"]})
        for found in facts
    )


def test_games_never_change() -> None:
    assert digest() == DIGEST


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_another_process_with_another_hash_seed_makes_the_same_games(hash_seed: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_synth; print(test_synth.digest())"
    )
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    made = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert made.stdout.strip() == DIGEST


def test_games_do_not_depend_on_what_was_made_before() -> None:
    tasks = SynthGames("valid_unseen").tasks()
    code = (
        "from agentgym_tok.envs.alfworld.synth import SynthGames, _game\n"
        "games = SynthGames('valid_unseen'); print(games.game(games.tasks()[77]).walkthrough)"
    )
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert alone.stdout.strip() == str(SynthGames("valid_unseen").game(tasks[77]).walkthrough)


def test_a_game_is_made_once_and_listing_makes_none() -> None:
    games = SynthGames("valid_seen")
    assert games.tasks() is games.tasks()
    first = games.tasks()[0]
    assert isinstance(games.game(first), Game)
    assert games.game(first) is SynthGames("valid_seen").game(first)
    assert games.game(first).task == first
    assert games.game(first).task_type == first.split("/")[2].split("-")[0]


def test_a_set_of_games_says_its_source_and_pickles() -> None:
    games = SynthGames()
    assert games.source == "ALFWorld-synth"
    assert games.split == "train"
    assert all(task.startswith("ALFWorld-synth/train/") for task in games.tasks())
    again = pickle.loads(pickle.dumps(games))
    assert again == games
    assert again.tasks() == games.tasks()


def test_an_unknown_split_or_task_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean valid_unseen"):
        SynthGames("valid_unsen")
    task = SynthGames("valid_seen").tasks()[5]
    with pytest.raises(UnknownName, match=f"did you mean {task}"):
        SynthGames("valid_seen").game(task[:-1])
    with pytest.raises(UnknownName, match="split valid_unseen"):
        SynthGames("valid_unseen").game(task)
