import re

import pytest

from agentgym_tok.envs.alfworld.problem import Goal, read_problem
from agentgym_tok.errors import DataCorrupt

INIT = "(:init (receptacleType Desk_bar_1 DeskType) (pickupable Pen_bar_1) (pickupable Pen_bar_1))"
PLACE = (
    "(:goal (and (exists (?r - receptacle) (exists (?o - object) (and "
    "(inReceptacle ?o ?r) (objectType ?o PenType) (receptacleType ?r DeskType))))))"
)


def problem(init: str = INIT, goal: str = PLACE) -> str:
    return f"(define (problem p)\n(:domain alfred)\n(:objects agent1 - agent)\n{init}\n{goal})\n"


def test_facts_are_pairs_in_lower_case_and_may_repeat() -> None:
    facts = read_problem(problem()).facts
    assert facts["receptacletype"] == [("desk_bar_1", "desktype")]
    assert facts["pickupable"] == [("pen_bar_1", ""), ("pen_bar_1", "")]
    assert facts["openable"] == []


def test_whitespace_is_free() -> None:
    loose = re.sub(r"([()])", r" \1\n ", problem()).replace("- ", " -\t").replace("( :", "(:").replace("(\n :", "(:")
    assert read_problem(loose) == read_problem(problem())


def test_a_goal_is_known_by_its_predicates_and_keeps_its_types() -> None:
    assert read_problem(problem()).goal == Goal("pick_and_place_simple", "pentype", "desktype")


def test_lamp_and_object_of_a_look_goal_are_told_apart_by_their_variables() -> None:
    goal = (
        "(:goal (and (exists (?o - object ?a - agent) (and (objectType ?o PenType) (holds ?a ?o))) "
        "(exists (?ot - object) (and (objectType ?ot FloorLampType) (toggleable ?ot) (isToggled ?ot) "
        "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))))"
    )
    assert read_problem(problem(goal=goal)).goal == Goal("look_at_obj_in_light", "pentype", "floorlamptype")


@pytest.mark.parametrize(
    "fact",
    ["(glows Pen_bar_1)", "(pickupable Pen_bar_1 Desk_bar_1)", "(inReceptacle Pen_bar_1)", "(pickupable)", "(a b c d)"],
)
def test_a_fact_that_no_game_has_is_refused_by_name(fact: str) -> None:
    with pytest.raises(DataCorrupt) as caught:
        read_problem(problem(INIT[:-1] + fact + ")"), where="some file")
    assert caught.value.where == "some file"
    assert fact.lower().split()[0].strip("()") in str(caught.value.got)


@pytest.mark.parametrize(
    "changed",
    [
        PLACE.replace("(inReceptacle ?o ?r)", ""),
        PLACE.replace("(inReceptacle ?o ?r)", "(inReceptacle ?o ?r) (isHot ?o)"),
        PLACE.replace("(inReceptacle ?o ?r)", "(not (inReceptacle ?o ?r))"),
        PLACE.replace("(and (in", "(or (in"),
        PLACE.replace("(objectType ?o PenType)", "(objectType PenType)"),
        "(:goal (and))",
    ],
)
def test_another_goal_is_refused(changed: str) -> None:
    with pytest.raises(DataCorrupt, match="not a goal of ALFWorld"):
        read_problem(problem(goal=changed))


def test_two_objects_must_be_of_one_type() -> None:
    half = "(objectType ?o{0} {1}Type) (receptacleType ?r DeskType) (inReceptacle ?o{0} ?r)"
    goal = "(:goal (and {} (not (= ?o1 ?o2)) {}))"
    same = goal.format(half.format(1, "Pen"), half.format(2, "Pen"))
    assert read_problem(problem(goal=same)).goal == Goal("pick_two_obj_and_place", "pentype", "desktype")
    with pytest.raises(DataCorrupt, match="one object type"):
        read_problem(problem(goal=goal.format(half.format(1, "Pen"), half.format(2, "Mug"))))


def test_a_text_that_is_cut_anywhere_is_refused() -> None:
    whole = problem()
    for end in range(len(whole.rstrip())):
        with pytest.raises(DataCorrupt):
            read_problem(whole[:end])


@pytest.mark.parametrize("init", ["(:init (not (pickupable Pen_bar_1)))", "(:init (= (cost) 3))", "(:init pickupable)"])
def test_facts_that_are_not_flat_are_refused(init: str) -> None:
    with pytest.raises(DataCorrupt):
        read_problem(problem(init))
