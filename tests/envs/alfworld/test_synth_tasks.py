from collections import Counter

import pytest

from agentgym_tok.envs.alfworld.floor_plans import floor_plan
from agentgym_tok.envs.alfworld.household import ROOMS, THINGS
from agentgym_tok.envs.alfworld.problem import TASK_TYPES
from agentgym_tok.envs.alfworld.synth_tasks import SPLITS, TREATMENTS, synth_tasks

SIZES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_has_the_official_size_and_mix(split: str) -> None:
    tasks = synth_tasks(split)
    assert len(tasks) == SIZES[split]
    assert Counter(task.task_type for task in tasks) == SPLITS[split]
    assert set(SPLITS[split]) == set(TASK_TYPES)


@pytest.mark.parametrize("split", SPLITS)
def test_any_first_part_of_a_split_is_a_fair_mix(split: str) -> None:
    seen = Counter()
    for made, task in enumerate(synth_tasks(split), 1):
        seen[task.task_type] += 1
        for task_type, count in SPLITS[split].items():
            assert abs(seen[task_type] - count * made / SIZES[split]) < 1.5


def test_no_two_tasks_share_an_id_or_a_trial() -> None:
    tasks = [task for split in SPLITS for task in synth_tasks(split)]
    assert len({task.id for task in tasks}) == len({task.trial for task in tasks}) == len(tasks)


def test_no_task_is_set_in_two_splits() -> None:
    folders = {split: {task.folder for task in synth_tasks(split)} for split in SPLITS}
    assert folders["train"].isdisjoint(folders["valid_seen"])
    assert folders["valid_unseen"].isdisjoint(folders["train"] | folders["valid_seen"])


def test_seen_plans_are_those_of_train_and_unseen_plans_are_new() -> None:
    numbers = {split: {task.plan for task in synth_tasks(split)} for split in SPLITS}
    assert numbers["valid_seen"] <= numbers["train"]
    assert numbers["valid_unseen"].isdisjoint(numbers["train"])
    assert (len(numbers["train"]), len(numbers["valid_unseen"])) == (108, 12)
    rooms = {
        split: {tuple(place.id for place in floor_plan(number).places) for number in numbers[split]}
        for split in numbers
    }
    assert rooms["valid_unseen"].isdisjoint(rooms["train"])


@pytest.mark.parametrize("split", SPLITS)
def test_each_room_sets_each_kind_of_task_that_it_can(split: str) -> None:
    first_plans = {room.first_plan: name for name, room in ROOMS.items()}
    rooms = {
        kind: {first_plans[task.plan // 100 * 100] for task in synth_tasks(split) if task.task_type == kind}
        for kind in TASK_TYPES
    }
    assert rooms["pick_and_place_simple"] == rooms["pick_two_obj_and_place"] == set(ROOMS)
    assert rooms["look_at_obj_in_light"] == {"bedroom", "living room"}
    assert rooms["pick_clean_then_place_in_recep"] == {"kitchen", "bathroom"}
    assert rooms["pick_heat_then_place_in_recep"] == rooms["pick_cool_then_place_in_recep"] == {"kitchen"}


def test_every_task_can_be_done_in_its_room() -> None:
    for task in (task for split in SPLITS for task in synth_tasks(split)):
        thing, kinds = THINGS[task.object_target], {place.kind for place in floor_plan(task.plan).places}
        if task.task_type == "look_at_obj_in_light":
            assert "pickupable" in thing.traits
            assert "toggleable" in THINGS[task.target].traits
            continue
        assert task.target in kinds & set(thing.places)
        assert thing.returns
        if task.task_type in TREATMENTS:
            _verb, trait, tool = TREATMENTS[task.task_type]
            assert trait in thing.traits
            assert tool in kinds - {task.target}
