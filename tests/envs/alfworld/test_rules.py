"""Rules are tested by play: each scene is a list of commands, and what the world says to the last one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agentgym_tok.envs.alfworld import rules
from agentgym_tok.envs.alfworld.game import Game
from agentgym_tok.envs.alfworld.text import HELP

MakeGame = Callable[..., Game]


class Play:
    def __init__(self, game: Game) -> None:
        self.room, self.state, self.said = game.room, game.room.start, ""

    @property
    def commands(self) -> set[str]:
        return set(rules.commands(self.room, self.state))

    def __call__(self, *commands: str) -> str:
        for command in commands:
            action = rules.commands(self.room, self.state)[command]
            self.state, self.said = rules.perform(self.room, self.state, action)
        return self.said

    @property
    def won(self) -> bool:
        return rules.solved(self.room, self.state)


@pytest.fixture
def play(kitchen: MakeGame) -> Play:
    return Play(kitchen())


def test_at_the_start_one_can_go_everywhere_and_touch_nothing(play: Play) -> None:
    others = {"help", "inventory", "look"}
    assert play.commands == {f"go to {name}" for name in play.room.receptacles} | others
    assert len(play.room.receptacles) == 10


def test_the_first_view_lists_all_receptacles_by_id(play: Play) -> None:
    assert rules.first_look(play.room) == (
        "You are in the middle of a room. Looking quickly around you, you see a bathtubbasin 2, a bathtubbasin 1, "
        "a cabinet 2, a cabinet 1, a countertop 1, a drawer 1, a fridge 1, a microwave 1, a sidetable 1, "
        "and a sinkbasin 1."
    )
    assert play("look") == "You are in the middle of a room. Looking quickly around you, you see nothing."


def test_an_agent_that_starts_at_a_receptacle_faces_it(kitchen: MakeGame) -> None:
    room = kitchen().room
    at_fridge = room.start._replace(at=room.location[room.receptacles.index("fridge 1")])
    room = replace(room, start=at_fridge)
    assert rules.first_look(room) == "You are facing the fridge 1. Next to it, you see nothing."


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["look"], "You are in the middle of a room. Looking quickly around you, you see nothing."),
        (["help"], HELP),
        (["inventory"], "You are not carrying anything."),
        (["go to microwave 1"], "You arrive at microwave 1. The microwave 1 is closed."),
        (["go to cabinet 1"], "You arrive at cabinet 1. On the cabinet 1, you see a pan 1."),
        (["go to sinkbasin 1"], "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing."),
        (
            ["go to fridge 1", "open fridge 1"],
            "You open the fridge 1. The fridge 1 is open. In it, you see a potato 1.",
        ),
        (["go to fridge 1", "open fridge 1", "close fridge 1"], "You close the fridge 1."),
        (["go to fridge 1", "examine fridge 1"], "The fridge 1 is closed."),
        (["go to fridge 1", "open fridge 1", "examine fridge 1"], "The fridge 1 is open. In it, you see a potato 1."),
        (["go to fridge 1", "look"], "You are facing the fridge 1. Next to it, you see nothing."),
        (["go to cabinet 1", "look"], "You are facing the cabinet 2, and cabinet 1. Next to it, you see nothing."),
        (["go to countertop 1", "take mug 1 from countertop 1"], "You pick up the mug 1 from the countertop 1."),
        (["go to countertop 1", "take mug 1 from countertop 1", "inventory"], "You are carrying: a mug 1."),
        (
            ["go to countertop 1", "take mug 1 from countertop 1", "go to cabinet 1", "move mug 1 to cabinet 1"],
            "You move the mug 1 to the cabinet 1.",
        ),
        (
            [
                "go to countertop 1",
                "take apple 1 from countertop 1",
                "go to sinkbasin 1",
                "clean apple 1 with sinkbasin 1",
            ],
            "You clean the apple 1 using the sinkbasin 1.",
        ),
        (
            ["go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1", "cool apple 1 with fridge 1"],
            "You cool the apple 1 using the fridge 1.",
        ),
        (
            [
                "go to countertop 1",
                "take apple 1 from countertop 1",
                "go to microwave 1",
                "heat apple 1 with microwave 1",
            ],
            "You heat the apple 1 using the microwave 1.",
        ),
        (["go to sidetable 1", "use floorlamp 1"], "You turn on the floorlamp 1."),
        (
            ["go to countertop 1", "take knife 1 from countertop 1", "slice apple 2 with knife 1"],
            "You sliced the apple 2 with the knife 1.",
        ),
    ],
)
def test_the_world_says(play: Play, commands: list[str], said: str) -> None:
    assert play(*commands) == said


def test_what_lies_on_a_receptacle_is_listed_by_id(play: Play) -> None:
    play("go to countertop 1")
    listed = "a apple 2, a apple 1, a knife 1, a mug 1, and a pan 1"
    assert play("examine countertop 1") == f"On the countertop 1, you see {listed}."


def test_one_cannot_go_to_where_one_stands_nor_to_its_neighbour(play: Play) -> None:
    play("go to cabinet 1")
    assert {"go to cabinet 1", "go to cabinet 2"}.isdisjoint(play.commands)
    # What stands at the same location can be handled all the same.
    assert {"examine cabinet 1", "examine cabinet 2", "open cabinet 2", "take pan 1 from cabinet 1"} <= play.commands


def test_the_start_cannot_be_reached_again(play: Play) -> None:
    start = play.state.at
    play("go to fridge 1")
    assert start not in play.room.location


def test_a_closed_receptacle_gives_and_takes_nothing(play: Play) -> None:
    play("go to fridge 1")
    assert "take potato 1 from fridge 1" not in play.commands
    play("open fridge 1")
    assert {"take potato 1 from fridge 1", "close fridge 1"} <= play.commands
    assert "open fridge 1" not in play.commands
    play("take potato 1 from fridge 1", "close fridge 1")
    assert "move potato 1 to fridge 1" not in play.commands


def test_the_hand_holds_one_object(play: Play) -> None:
    play("go to countertop 1")
    assert {"take apple 1 from countertop 1", "take mug 1 from countertop 1"} <= play.commands
    play("take apple 1 from countertop 1")
    assert not any(command.startswith("take") for command in play.commands)


def test_only_the_held_object_can_be_examined(play: Play) -> None:
    play("go to countertop 1")
    assert [c for c in play.commands if c.startswith("examine")] == ["examine countertop 1"]
    play("take apple 1 from countertop 1")
    assert {c for c in play.commands if c.startswith("examine")} == {"examine countertop 1", "examine apple 1"}


def test_an_object_goes_only_where_its_kind_fits(play: Play) -> None:
    play("go to countertop 1", "take mug 1 from countertop 1", "go to sidetable 1", "open drawer 1")
    assert not any(command.startswith("move") for command in play.commands)


def test_treatments_need_neither_an_open_appliance_nor_a_put_and_can_be_repeated(play: Play) -> None:
    play("go to countertop 1", "take apple 1 from countertop 1", "go to microwave 1")
    assert "heat apple 1 with microwave 1" in play.commands
    play("heat apple 1 with microwave 1")
    state = play.state
    assert play("heat apple 1 with microwave 1") == "You heat the apple 1 using the microwave 1."
    assert play.state is state


def test_heat_and_cold_replace_each_other(play: Play) -> None:
    play("go to countertop 1", "take apple 1 from countertop 1", "go to microwave 1", "heat apple 1 with microwave 1")
    assert play("examine apple 1") == "This is a hot apple 1."
    assert play("go to fridge 1", "cool apple 1 with fridge 1", "examine apple 1") == "This is a cold apple 1."
    play("go to sinkbasin 1", "clean apple 1 with sinkbasin 1")
    assert play("examine apple 1") == "This is a cool and clean apple 1."
    play("go to microwave 1", "heat apple 1 with microwave 1")
    assert play("examine apple 1") == "This is a hot and clean apple 1."


def test_only_what_can_be_treated_is_treated(play: Play) -> None:
    play("go to countertop 1", "take knife 1 from countertop 1", "go to microwave 1")
    assert not any(command.startswith("heat") for command in play.commands)
    play("go to fridge 1")
    assert not any(command.startswith("cool") for command in play.commands)
    play("go to sinkbasin 1")
    assert "clean knife 1 with sinkbasin 1" in play.commands


def test_a_bathtub_cleans_by_its_type_and_not_by_its_name(play: Play) -> None:
    play("go to countertop 1", "take apple 1 from countertop 1", "go to bathtubbasin 2")
    assert "clean apple 1 with bathtubbasin 2" in play.commands
    play("go to bathtubbasin 1")
    assert "clean apple 1 with bathtubbasin 1" not in play.commands


def test_an_object_can_be_cool_from_the_start_without_being_coolable(play: Play) -> None:
    play("go to sidetable 1", "take glassbottle 1 from sidetable 1")
    assert play("examine glassbottle 1") == "This is a cold glassbottle 1."
    play("go to fridge 1")
    assert "cool glassbottle 1 with fridge 1" not in play.commands


def test_a_receptacle_object_hides_its_states_and_never_loses_its_content(play: Play) -> None:
    play("go to sidetable 1", "open drawer 1", "take spoon 1 from drawer 1", "move spoon 1 to drawer 1")
    play("go to countertop 1", "take mug 1 from countertop 1", "go to sinkbasin 1", "clean mug 1 with sinkbasin 1")
    assert play("examine mug 1") == "This is a normal mug 1. In it, you see a spoon 1."


def test_an_object_in_two_receptacles_leaves_one_at_a_time(play: Play) -> None:
    play("go to countertop 1", "take pan 1 from countertop 1")
    assert play("go to cabinet 1", "examine cabinet 1") == "On the cabinet 1, you see a pan 1."
    play("move pan 1 to cabinet 1")
    assert play("examine cabinet 1") == "On the cabinet 1, you see a pan 1."
    play("take pan 1 from cabinet 1")
    assert play("examine cabinet 1") == "On the cabinet 1, you see nothing."


def test_look_names_what_was_taken_from_here_and_lies_here_again(play: Play) -> None:
    play("go to cabinet 1", "open cabinet 2", "take pan 1 from cabinet 1")
    assert play("look").endswith("Next to it, you see nothing.")
    play("move pan 1 to cabinet 2")
    assert play("look") == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a pan 1."
    play("take pan 1 from cabinet 2", "go to fridge 1", "go to cabinet 2")
    assert play("look").endswith("Next to it, you see nothing.")
    play("move pan 1 to cabinet 1")
    assert play("look") == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a pan 1."


def test_look_does_not_name_what_was_brought_from_elsewhere(play: Play) -> None:
    play("go to countertop 1", "take mug 1 from countertop 1", "go to cabinet 1", "move mug 1 to cabinet 1")
    assert play("look").endswith("Next to it, you see nothing.")


def test_look_names_an_object_once_for_each_receptacle_it_was_taken_from(play: Play) -> None:
    play("go to cabinet 1", "take pan 1 from cabinet 1")
    # The fact that it lies here is made by hand: in official games it comes from two facts that contradict each other.
    play.state = play.state._replace(
        object_at=play.state.object_at | {(play.state.held or 0, play.state.at)},
        taken=play.state.taken | {(play.state.held or 0, r) for r in play.room.receptacles_at[play.state.at]},
    )
    assert play("look").endswith("Next to it, you see a pan 1, and a pan 1.")


def test_a_lamp_works_in_a_closed_receptacle_and_stays_on(play: Play) -> None:
    play("go to sidetable 1")
    assert "open drawer 1" in play.commands
    assert play("use desklamp 1") == "You turn on the desklamp 1."
    state = play.state
    assert play("use desklamp 1") == "You turn on the desklamp 1."
    assert play.state is state


def test_a_lamp_that_is_in_no_receptacle_cannot_be_used(play: Play) -> None:
    assert "desklamp 2" in play.room.objects
    play("go to countertop 1")
    assert not any(command.startswith("use") for command in play.commands)


def test_a_lamp_that_was_switched_on_is_on_in_the_hand(play: Play) -> None:
    play("go to sidetable 1", "use floorlamp 1", "take floorlamp 1 from sidetable 1")
    assert play("examine floorlamp 1") == "This floorlamp 1 is on."
    assert "use floorlamp 1" not in play.commands


def test_what_lies_here_by_its_own_fact_can_be_sliced_even_in_a_closed_fridge_elsewhere(play: Play) -> None:
    play("go to countertop 1", "take knife 1 from countertop 1")
    sliced = {command for command in play.commands if command.startswith("slice")}
    assert sliced == {f"slice {name} with knife 1" for name in ("apple 1", "apple 2", "potato 1")}
    play("slice potato 1 with knife 1", "go to fridge 1")
    assert {command for command in play.commands if command.startswith("slice")} == {"slice potato 1 with knife 1"}


def test_a_taken_object_keeps_a_location_that_the_file_gives_it_elsewhere(play: Play) -> None:
    potato = play.room.objects.index("potato 1")
    play("go to fridge 1", "open fridge 1", "take potato 1 from fridge 1")
    left = {spot for o, spot in play.state.object_at if o == potato}
    assert left == {play.room.location[play.room.receptacles.index("countertop 1")]}


def test_without_a_knife_nothing_is_sliced(play: Play) -> None:
    play("go to countertop 1")
    assert not any(command.startswith("slice") for command in play.commands)
    play("take mug 1 from countertop 1")
    assert not any(command.startswith("slice") for command in play.commands)


def test_a_sliced_object_says_so_after_it_is_taken(play: Play) -> None:
    play("go to countertop 1", "take knife 1 from countertop 1", "slice apple 1 with knife 1")
    play("move knife 1 to countertop 1", "take apple 1 from countertop 1")
    assert play("examine apple 1") == "This is a sliced apple 1."
    assert play("go to fridge 1", "cool apple 1 with fridge 1", "examine apple 1") == "This is a cool sliced apple 1."


def test_an_object_in_no_receptacle_cannot_be_taken(play: Play) -> None:
    for name in play.room.receptacles:
        if f"go to {name}" in play.commands:
            play(f"go to {name}")
        if f"open {name}" in play.commands:
            play(f"open {name}")
        assert not any(command.startswith("take egg 1") for command in play.commands)


PUT = ["take mug 1 from countertop 1", "go to cabinet 1", "move mug 1 to cabinet 1"]


@pytest.mark.parametrize(
    ("task_type", "place", "treat"),
    [
        ("pick_clean_then_place_in_recep", "sinkbasin 1", "clean"),
        ("pick_heat_then_place_in_recep", "microwave 1", "heat"),
        ("pick_cool_then_place_in_recep", "fridge 1", "cool"),
    ],
)
def test_a_treated_object_wins_where_an_untreated_one_does_not(
    kitchen: MakeGame, task_type: str, place: str, treat: str
) -> None:
    play = Play(kitchen(task_type))
    play("go to countertop 1", *PUT)
    assert not play.won
    play("take mug 1 from cabinet 1", f"go to {place}", f"{treat} mug 1 with {place}")
    assert not play.won
    play("go to cabinet 1", "move mug 1 to cabinet 1")
    assert play.won


def test_cold_undone_by_heat_does_not_win(kitchen: MakeGame) -> None:
    play = Play(kitchen("pick_cool_then_place_in_recep"))
    play("go to countertop 1", PUT[0], "go to fridge 1", "cool mug 1 with fridge 1")
    play("go to microwave 1", "heat mug 1 with microwave 1", "go to cabinet 1", "move mug 1 to cabinet 1")
    assert not play.won


def test_an_object_that_is_cool_but_not_coolable_does_not_win(kitchen: MakeGame) -> None:
    mug = "Mug_bar__plus_02_dot_00_bar_00_dot_00"
    counter = "CounterTop_bar__plus_01_dot_00_bar_00_dot_00"
    facts = (f"(objectType {mug} MugType)", f"(pickupable {mug})", f"(isCool {mug})", f"(inReceptacle {mug} {counter})")
    play = Play(kitchen("pick_cool_then_place_in_recep", *facts))
    play("go to countertop 1", "take mug 1 from countertop 1")
    assert play("examine mug 1") == "This is a cold mug 1."
    play("go to cabinet 1", "move mug 1 to cabinet 1")
    assert not play.won


def test_a_placed_object_wins_until_it_is_taken_again(kitchen: MakeGame) -> None:
    play = Play(kitchen("pick_and_place_simple"))
    play("go to countertop 1", "take apple 2 from countertop 1", "go to cabinet 1")
    assert not play.won
    play("move apple 2 to cabinet 1")
    assert play.won
    play("take apple 2 from cabinet 1")
    assert not play.won


def test_two_objects_must_share_one_receptacle(kitchen: MakeGame) -> None:
    play = Play(kitchen("pick_two_obj_and_place"))
    play(
        "go to countertop 1",
        "take apple 1 from countertop 1",
        "go to fridge 1",
        "open fridge 1",
        "move apple 1 to fridge 1",
    )
    assert not play.won
    play("go to countertop 1", "take apple 2 from countertop 1", "go to fridge 1", "move apple 2 to fridge 1")
    assert play.won


def test_light_wins_where_the_lit_lamp_stands_with_the_object_in_hand(kitchen: MakeGame) -> None:
    play = Play(kitchen("look_at_obj_in_light"))
    play("go to sidetable 1", "use desklamp 1")
    assert not play.won
    play("go to countertop 1", "take mug 1 from countertop 1")
    assert not play.won
    play("go to drawer 1")
    assert play.won


def test_another_lamp_does_not_win(kitchen: MakeGame) -> None:
    play = Play(kitchen("look_at_obj_in_light"))
    play("go to countertop 1", "take mug 1 from countertop 1", "go to sidetable 1", "use floorlamp 1")
    assert not play.won
    play("use desklamp 1")
    assert play.won
