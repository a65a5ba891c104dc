"""Tasks are read from the game's own sentences exactly, and from people's words by what they name."""

import pytest

from agentgym_tok.envs.alfworld.explorer import usual_places
from agentgym_tok.envs.alfworld.problem_writer import SENTENCES
from agentgym_tok.envs.alfworld.wish import LAMPS, Plan, Wish, read_wish

KITCHEN = ("cabinet", "countertop", "diningtable", "drawer", "fridge", "garbagecan", "microwave", "sinkbasin")


def read(task: str, places: tuple[str, ...] = KITCHEN) -> Wish:
    return read_wish(f"You are in the middle of a room.\n\nYour task is to: {task}", usual_places(), places)


@pytest.mark.parametrize("task_type", SENTENCES)
def test_the_games_own_sentences_have_one_reading(task_type: str) -> None:
    verbs = {"pick_clean": "clean", "pick_heat": "heat", "pick_cool": "cool"}
    verb = next((verb for start, verb in verbs.items() if task_type.startswith(start)), "")
    lamp = task_type.startswith("look")
    target = LAMPS[1] if lamp else "cabinet"
    number = 2 if task_type.startswith("pick_two") else 1
    for sentence in SENTENCES[task_type]:
        wish = read(sentence.format(object="mug", target=target) + ".")
        assert wish == Wish(((Plan("mug", target, verb, number),),), lamp)


@pytest.mark.parametrize(
    ("task", "plan"),
    [
        ("Put a washed apple in the refrigerator.", Plan("apple", "fridge", "clean")),
        ("Heat the potato in the microwave, then place it on the table.", Plan("potato", "diningtable", "heat")),
        ("Chill an egg and throw it in the trash can", Plan("egg", "garbagecan", "cool")),
        ("Move two forks from the counter to the drawer next to the sink.", Plan("fork", "drawer", "", 2)),
        ("Put the salt shakers away in a cupboard", Plan("saltshaker", "cabinet", "", 2)),
        ("Take the mug, put it in the fridge, and put it in the cabinet", Plan("mug", "cabinet", "cool")),
    ],
)
def test_people_are_understood(task: str, plan: Plan) -> None:
    assert read(task).readings[0][0] == plan


def test_a_lamp_may_be_any_lamp() -> None:
    wish = read("Examine the alarm clock by the light of a lamp", ("desk", "bed"))
    assert wish.lamp
    assert wish.readings == (tuple(Plan("alarmclock", lamp) for lamp in LAMPS),)


def test_a_word_of_several_meanings_gives_all_of_them_the_name_first() -> None:
    plans = read("Put a cup on the table.", ("coffeetable", "sidetable")).readings[0]
    assert [(plan.thing, plan.target) for plan in plans] == [
        ("cup", "coffeetable"),
        ("mug", "coffeetable"),
        ("cup", "sidetable"),
        ("mug", "sidetable"),
    ]


def test_what_nobody_names_may_go_anywhere() -> None:
    likely, _, others = read("Wash the knife.").readings
    assert {plan.target for plan in likely} == {plan.target for plan in others} == set(KITCHEN) - {"sinkbasin"}


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("Put a cup in a cupboard.", "put a cup or mug in cabinet. "),
        ("Put a washed cup in a cupboard.", "put a clean cup or mug in cabinet. "),
        ("Warm up a potato and put it on the counter", "put a hot potato in countertop. "),
        ("put a chilled tomato in the microwave", "put a cool tomato in microwave. "),
        ("Put two forks in the drawer", "put two fork in drawer. "),
        ("Turn on the lamp to see a book", "look at book under the desklamp or floorlamp. "),
        ("Put it in the drawer.", "put a thing in drawer. "),
    ],
)
def test_what_people_mean_is_told_in_the_words_of_the_game(task: str, told: str) -> None:
    wish = read(task)
    assert wish.told(wish.readings[0]) == told


def test_what_the_game_says_is_not_told_again() -> None:
    wish = read("put a clean mug in cabinet.")
    assert wish.told(wish.readings[0]) == ""
