from collections.abc import Callable

import pytest

from agentgym_tok.envs.alfworld.game import Game
from agentgym_tok.envs.alfworld.problem import read_problem
from agentgym_tok.envs.alfworld.room import Room
from agentgym_tok.errors import DataCorrupt

MakeGame = Callable[..., Game]


def test_names_count_down_in_the_order_of_the_ids(kitchen: MakeGame) -> None:
    room = kitchen().room
    assert [name for name in room.receptacles if name.startswith("cabinet")] == ["cabinet 2", "cabinet 1"]
    assert [name for name in room.objects if name.startswith("apple")] == ["apple 2", "apple 1"]


def test_basins_are_named_by_their_id_and_numbered_together(kitchen: MakeGame) -> None:
    names = kitchen().room.receptacles
    assert [name for name in names if "basin" in name] == ["bathtubbasin 2", "bathtubbasin 1", "sinkbasin 1"]


def test_ids_are_ordered_in_lower_case(kitchen: MakeGame) -> None:
    room = kitchen("pick_and_place_simple", "(pickupable apple_bar__plus_00_dot_50_bar_00_dot_00)").room
    assert room.objects[:3] == ("apple 3", "apple 2", "apple 1")


def test_an_object_without_a_type_takes_a_number_but_fits_nowhere(kitchen: MakeGame) -> None:
    room = kitchen().room
    egg = room.objects.index("egg 1")
    assert egg in room.pickupable
    assert all(egg not in fitting for fitting in room.fits)


def test_repeated_facts_count_once(kitchen: MakeGame) -> None:
    once = kitchen()
    apple = "Apple1_bar__plus_01_dot_00_bar_00_dot_00".replace("Apple1", "Apple")
    counter = "CounterTop_bar__plus_01_dot_00_bar_00_dot_00"
    again = kitchen("pick_and_place_simple", f"(inReceptacle {apple} {counter})", "(canContain FridgeType AppleType)")
    assert again == once


def facts(*found: str) -> str:
    goal = "(and (inReceptacle ?o ?r) (objectType ?o PenType) (receptacleType ?r DeskType))"
    return f"(define (:init {' '.join(found)}) (:goal {goal}))"


DESK = ("(receptacleType Desk_bar_1 DeskType)", "(receptacleAtLocation Desk_bar_1 loc_1)", "(atLocation agent1 loc_0)")


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (DESK[1:], "desk_bar_1"),
        (DESK[:1] + DESK[2:], "desk_bar_1"),
        (DESK[:2], "agent1"),
        ((*DESK, "(receptacleAtLocation Desk_bar_1 loc_2)"), "desk_bar_1"),
        ((*DESK, "(inReceptacle Pen_bar_1 Shelf_bar_1)"), "shelf_bar_1"),
        ((*DESK, "(openable Shelf_bar_1)"), "shelf_bar_1"),
        ((*DESK, "(objectType pen1 PenType)"), "pen1"),
        ((*DESK, "(objectType Pen_bar_1 PenType)", "(objectType Pen_bar_1 MugType)"), "pen_bar_1"),
    ],
)
def test_facts_with_gaps_or_contradictions_are_refused_by_name(found: tuple[str, ...], named: str) -> None:
    Room.from_problem(read_problem(facts(*DESK)))
    with pytest.raises(DataCorrupt) as caught:
        Room.from_problem(read_problem(facts(*found)), where="some file")
    assert named in str(caught.value.got)
    assert caught.value.where == "some file"
