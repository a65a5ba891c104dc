"""The memory holds what the texts said, and tells commands that are in vain from those that came too early."""

from agentgym_tok.envs.alfworld.memory import Memory, kind

ROOM = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
    "a cabinet 2, a cabinet 1, and a desk 10.\n\nYour task is to: put some mug on desk."
)


def told(*exchanges: tuple[str, str]) -> Memory:
    memory = Memory(ROOM)
    for command, answer in exchanges:
        memory.read(command, answer)
    return memory


def test_places_come_from_the_first_text() -> None:
    assert Memory(ROOM).places == ["cabinet 2", "cabinet 1", "desk 10"]
    assert Memory("You are facing the shelf 2, and shelf 1. Next to it, you see nothing.\n\nYour").places == [
        "shelf 2",
        "shelf 1",
    ]
    assert kind("desk 10") == "desk"


def test_things_move_with_the_hand() -> None:
    memory = told(
        ("go to cabinet 1", "You arrive at cabinet 1. The cabinet 1 is closed."),
        ("open cabinet 1", "You open the cabinet 1. The cabinet 1 is open. In it, you see a mug 2, and a cup 1."),
    )
    assert (memory.at, memory.closed, memory.inside) == ("cabinet 1", set(), {"cabinet 1": ["mug 2", "cup 1"]})
    memory.read("take mug 2 from cabinet 1", "You pick up the mug 2 from the cabinet 1.")
    assert (memory.held, memory.inside) == ("mug 2", {"cabinet 1": ["cup 1"]})
    memory.read("move mug 2 to cabinet 1", "You move the mug 2 to the cabinet 1.")
    assert (memory.held, memory.inside) == (None, {"cabinet 1": ["cup 1", "mug 2"]})
    memory.read("close cabinet 1", "You close the cabinet 1.")
    assert memory.closed == {"cabinet 1"}


def test_a_place_is_seen_only_when_it_was_looked_at() -> None:
    memory = told(
        ("go to desk 10", "You arrive at desk 10. On the desk 10, you see nothing."),
        ("take mug 1 from cabinet 2", "You pick up the mug 1 from the cabinet 2."),
        ("move mug 1 to cabinet 1", "You move the mug 1 to the cabinet 1."),
    )
    assert memory.inside == {"desk 10": []}


def test_heat_and_cold_replace_each_other_and_a_clean_thing_stays_clean() -> None:
    memory = told(
        ("", "You clean the mug 1 using the sinkbasin 1."),
        ("", "You heat the mug 1 using the microwave 1."),
        ("", "You cool the mug 1 using the fridge 1."),
    )
    assert [memory.treated("mug 1", verb) for verb in ("", "clean", "heat", "cool")] == [True, True, False, True]


def test_who_cannot_go_to_a_place_stands_there() -> None:
    memory = told(
        ("go to cabinet 1", "You arrive at cabinet 1. The cabinet 1 is closed."),
        ("go to cabinet 2", "Nothing happens."),
    )
    assert memory.here("cabinet 2")
    memory.read("go to desk 10", "You arrive at desk 10. On the desk 10, you see nothing.")
    assert not memory.here("cabinet 2")


def test_only_what_was_possible_but_for_itself_is_refused() -> None:
    closed = ("go to cabinet 1", "You arrive at cabinet 1. The cabinet 1 is closed.")
    early = told(closed, ("move mug 1 to cabinet 1", "Nothing happens."))
    assert not early.refused("move mug 1 to cabinet 1")
    assert not early.promising("move mug 1 to cabinet 1")
    early.read("go to desk 10", "You arrive at desk 10. On the desk 10, you see nothing.")
    assert early.promising("move mug 1 to cabinet 1")
    early.read("move mug 1 to desk 10", "Nothing happens.")
    assert early.refused("move mug 2 to desk 1")  # no desk takes a mug
    assert told(closed, ("heat mug 1 with cabinet 1", "Nothing happens.")).refused("heat mug 1 with cabinet 1")
