import re

import pytest

from agentgym_tok.envs.alfworld.problem import TASK_TYPES, read_problem
from agentgym_tok.envs.alfworld.problem_writer import SENTENCES, write_problem

FACTS = [
    ("atLocation", "agent1", "loc_bar_0_bar_0_bar_0_bar_0"),
    ("receptacleType", "Desk_bar_1", "DeskType"),
    ("receptacleAtLocation", "Desk_bar_1", "loc_bar_1_bar_1_bar_1_bar_30"),
    ("objectType", "Pen_bar_1", "PenType"),
    ("objectAtLocation", "Pen_bar_1", "loc_bar_1_bar_1_bar_1_bar_30"),
    ("inReceptacle", "Pen_bar_1", "Desk_bar_1"),
    ("pickupable", "Pen_bar_1"),
    ("canContain", "DeskType", "PenType"),
]


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_what_is_written_reads_back(task_type: str) -> None:
    problem = read_problem(write_problem("trial_T1", FACTS, task_type, "Pen", "Desk"))
    assert problem.goal == (task_type, "pentype", "desktype")
    read = {(predicate, *filter(None, arguments)) for predicate, found in problem.facts.items() for arguments in found}
    assert read == {tuple(word.lower() for word in fact) for fact in FACTS}


def test_every_name_is_declared_once_with_its_kind() -> None:
    text = write_problem("trial_T1", FACTS, "pick_and_place_simple", "Pen", "Desk")
    declared = dict(re.findall(r"^ +(\S+) - (\w+)$", text, re.MULTILINE))
    assert len(re.findall(r"^ +\S+ - ", text, re.MULTILINE)) == len(declared)
    assert {name for fact in FACTS for name in fact[1:]} <= set(declared)
    assert declared["agent1"] == "agent"
    assert declared["Pen_bar_1"] == "object"
    assert declared["Desk_bar_1"] == "receptacle"
    assert declared["loc_bar_0_bar_0_bar_0_bar_0"] == "location"
    assert {"KnifeType", "ButterKnifeType", "PenType"} == {name for name, kind in declared.items() if kind == "otype"}
    assert {"SinkBasinType", "SinkType", "MicrowaveType", "FridgeType", "DeskType"} == {
        name for name, kind in declared.items() if kind == "rtype"
    }


def test_each_kind_of_task_can_be_said_in_two_ways() -> None:
    assert list(SENTENCES) == list(TASK_TYPES)
    said = {form.format(object="pen", target="desk") for forms in SENTENCES.values() for form in forms}
    assert len(said) == 12
    assert {"put some pen on desk", "put a clean pen in desk", "heat some pen and put it in desk"} <= said
    assert {"look at pen under the desk", "put a hot pen in desk", "find two pen and put them in desk"} <= said
