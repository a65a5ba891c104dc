from agentgym_tok.envs.alfworld.household import BESIDE, LAMP, OPENABLE, ROOMS, THINGS

FURNITURE = {kind for room in ROOMS.values() for kind in room.furniture}


def test_every_name_in_one_table_exists_in_the_others() -> None:
    assert set(OPENABLE) <= FURNITURE
    assert set(BESIDE) | {other for neighbours in BESIDE.values() for other in neighbours} <= FURNITURE
    assert {place for thing in THINGS.values() for place in thing.places} <= FURNITURE
    assert {thing for room in ROOMS.values() for thing in room.things} == set(THINGS)


def test_neighbours_are_set_up_before_those_that_stand_beside_them() -> None:
    for room in ROOMS.values():
        order = list(room.furniture)
        assert all(
            order.index(other) <= order.index(kind)
            for kind in order
            for other in BESIDE.get(kind, {})
            if other in order
        )


def test_only_what_official_games_toggle_heat_or_slice_does_so() -> None:
    def those(trait: str) -> set[str]:
        return {kind for kind, thing in THINGS.items() if trait in thing.traits}

    assert those("toggleable") == {LAMP}
    assert those("heatable") == {"Apple", "Bread", "Cup", "Egg", "Mug", "Plate", "Potato", "Tomato"}
    assert those("sliceable") == {"Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato"}
    assert those("isReceptacleObject") == {"Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot"}
    assert those("coolable") - those("heatable") == {"Bowl", "Lettuce", "Pan", "Pot", "WineBottle"}
    assert set(THINGS) - those("pickupable") == {LAMP, "HousePlant", "Television"}


def test_every_thing_can_start_somewhere_in_each_room_that_has_it() -> None:
    for room in ROOMS.values():
        for kind in room.things:
            assert any(weight and place in room.furniture for place, weight in THINGS[kind].places.items()), kind
