import re

import pytest

from agentgym_tok.envs.alfworld.floor_plans import floor_plan
from agentgym_tok.envs.alfworld.household import OPENABLE, ROOMS

NUMBERS = [room.first_plan + number for room in ROOMS.values() for number in range(1, 31)]
COORDINATE = r"_(plus|minus)_\d\d_dot_\d\d"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_plan_has_the_size_of_an_official_room_and_a_start_apart(number: int) -> None:
    plan = floor_plan(number)
    assert 10 <= len(plan.places) <= 40
    assert plan.start not in {place.location for place in plan.places}
    assert {place.kind for place in plan.places} <= set(plan.room.furniture)
    assert all(plan.room.furniture[place.kind][2] >= len(plan.of(place.kind)) for place in plan.places)
    assert not any(place.openable for place in plan.places if place.kind not in OPENABLE)


@pytest.mark.parametrize("number", NUMBERS)
def test_ids_have_the_official_form_and_are_unique(number: int) -> None:
    plan = floor_plan(number)
    ids = [place.id.lower() for place in plan.places]
    assert len(set(ids)) == len(ids)
    for place in plan.places:
        name, suffix = {
            "SinkBasin": ("Sink", "_bar_SinkBasin"),
            "BathtubBasin": ("Bathtub", "_bar_BathtubBasin"),
        }.get(place.kind, (place.kind, ""))
        assert re.fullmatch(rf"{name}(_bar_{COORDINATE}){{3}}{suffix}", place.id)
        number_form = r"(\d+|_minus_\d+)"
        assert re.fullmatch(rf"loc_bar_{number_form}_bar_{number_form}_bar_[0-3]_bar_(0|30|45|60)", place.location)


def test_some_receptacles_share_a_location_as_in_three_of_four_official_rooms() -> None:
    shared = [
        len(floor_plan(number).places) - len({place.location for place in floor_plan(number).places})
        for number in NUMBERS
    ]
    assert 0.5 < sum(map(bool, shared)) / len(shared) < 1
    assert max(shared) >= 5


def test_a_plan_is_the_same_whenever_it_is_made() -> None:
    first = floor_plan(17)
    floor_plan.cache_clear()
    assert floor_plan(17) == first


def test_kitchens_can_clean_heat_and_cool_and_bathrooms_can_clean() -> None:
    for number in range(1, 31):
        assert {"SinkBasin", "Microwave", "Fridge"} <= {place.kind for place in floor_plan(number).places}
        assert floor_plan(400 + number).of("SinkBasin")
