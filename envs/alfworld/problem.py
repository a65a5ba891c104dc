"""Read the subset of PDDL in which ALFWorld writes down a room and its goal."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from agentgym_tok.errors import DataCorrupt

__all__ = ["TASK_TYPES", "Goal", "Problem", "read_problem"]

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six kinds of household task, by their official names."""


class Goal(NamedTuple):
    """Hold what wins a game.

    Args:
        task_type: One of `TASK_TYPES`.
        object_type: Type of the object to bring, such as `"penciltype"`.
        target_type: Type of the receptacle to bring it to, or of the lamp to bring it under.
    """

    task_type: str
    object_type: str
    target_type: str


class Problem(NamedTuple):
    """Hold one problem, everything in lower case.

    Args:
        facts: For each predicate its pairs of arguments, in the order of the text; the second is empty where the
            predicate takes one. A fact may repeat.
        goal: What wins.
    """

    facts: dict[str, list[tuple[str, str]]]
    goal: Goal


# The predicates that occur in official games, with their number of arguments.
_ARITY = {
    "atlocation": 2,
    "receptacleatlocation": 2,
    "objectatlocation": 2,
    "inreceptacle": 2,
    "inreceptacleobject": 2,
    "receptacletype": 2,
    "objecttype": 2,
    "cancontain": 2,
    "pickupable": 1,
    "openable": 1,
    "cleanable": 1,
    "heatable": 1,
    "coolable": 1,
    "sliceable": 1,
    "toggleable": 1,
    "isreceptacleobject": 1,
    "iscool": 1,
}

# A goal is known by the words that it is made of, apart from `and` and `exists`: each multiset belongs to one kind.
_PLACED = ("inreceptacle", "objecttype", "receptacletype")
_LIT = ("toggleable", "istoggled", "receptacleatlocation", "atlocation", "inreceptacle", "holds")
_GOALS = {
    tuple(sorted(words)): task_type
    for task_type, words in {
        "pick_and_place_simple": _PLACED,
        "look_at_obj_in_light": (*_LIT, "objecttype", "objecttype"),
        "pick_clean_then_place_in_recep": (*_PLACED, "cleanable", "isclean"),
        "pick_heat_then_place_in_recep": (*_PLACED, "heatable", "ishot"),
        "pick_cool_then_place_in_recep": (*_PLACED, "coolable", "iscool"),
        "pick_two_obj_and_place": (*_PLACED, *_PLACED, "not", "="),
    }.items()
}

_NAME = r"[^\s()]++"
_FLAT = rf"\s*+\(\s*+{_NAME}(?:\s++{_NAME})*+\s*+\)"
_SECTIONS = re.compile(rf"\(:init(?P<init>(?:{_FLAT})*+)\s*+\)\s*+\(:goal(?P<goal>.*)\)\s*+\)\s*+\Z", re.DOTALL)
_FACT = re.compile(rf"\(\s*+({_NAME})\s++({_NAME})(?:\s++({_NAME}))?+\s*+\)")
_ATOM = re.compile(rf"\(\s*+({_NAME})((?:\s++{_NAME})*+)\s*+\)")
_HEAD = re.compile(rf"\(\s*+({_NAME})")


def read_problem(text: str, *, where: object = None) -> Problem:
    """Read a `pddl_problem`.

    The `(:objects ...)` section is skipped: what a game needs stands in its facts.

    Args:
        text: The problem, as it stands in a game file.
        where: The file or task, for error messages.

    Raises:
        DataCorrupt: The text is no such problem, or its facts or goal are none of ALFWorld's.
    """
    lowered = text.lower()
    sections = _SECTIONS.search(lowered)
    if sections is None:
        raise DataCorrupt(
            "not an ALFWorld problem",
            where=where,
            got=f"{len(text)} characters that end in {text[-60:]!r}",
            expected="(define (problem ...) ... (:init of flat facts) (:goal ...))",
            fix="the text is cut off or was changed: get the game file again",
        )
    return Problem(_read_facts(sections["init"], where), _read_goal(sections["goal"], where))


def _read_facts(init: str, where: object) -> dict[str, list[tuple[str, str]]]:
    facts: dict[str, list[tuple[str, str]]] = {predicate: [] for predicate in _ARITY}
    found = _FACT.findall(init)
    for predicate, first, second in found:
        if _ARITY.get(predicate) != (2 if second else 1):
            raise _bad_fact(f"({predicate} {first} {second})", where)
        facts[predicate].append((first, second))
    if len(found) != init.count("("):
        odd = next(fact for fact in re.findall(r"\([^()]*\)", init) if not _FACT.fullmatch(fact))
        raise _bad_fact(odd, where)
    return facts


def _bad_fact(fact: str, where: object) -> DataCorrupt:
    predicate = fact.strip("() \n\t").split()[0]
    wanted = f"{predicate} with {_ARITY[predicate]} arguments" if predicate in _ARITY else f"one of {', '.join(_ARITY)}"
    return DataCorrupt(
        "a fact that no ALFWorld game has",
        where=where,
        got=fact,
        expected=wanted,
        fix="remove the fact from (:init ...), or get the game file again",
    )


def _read_goal(text: str, where: object) -> Goal:
    # "(?r - receptacle)" declares a variable.
    words = [word for word in _HEAD.findall(text) if word not in {"and", "exists"} and not word.startswith("?")]
    task_type = _GOALS.get(tuple(sorted(words)))
    if task_type is None or text.count("(") != text.count(")"):
        raise _bad_goal(text, where, "the predicates of one of the six kinds of task")
    goal = _bind(task_type, [(predicate, terms.split()) for predicate, terms in _ATOM.findall(text)])
    if goal is None:
        raise _bad_goal(text, where, f"one object type and one target type, as in every goal of {task_type}")
    return goal


def _bind(task_type: str, atoms: Sequence[tuple[str, list[str]]]) -> Goal | None:
    """Return the goal that the atoms state, or None where they do not name one type for each part."""
    type_of = {terms[0]: terms[-1] for predicate, terms in atoms if predicate == "objecttype" and len(terms) == 2}
    if task_type == "look_at_obj_in_light":
        variable = {predicate: terms[-1] for predicate, terms in atoms if terms}
        objects = {type_of.get(variable.get("holds", ""), "")}
        targets = {type_of.get(variable.get("toggleable", ""), "")}
    else:
        objects = set(type_of.values())
        targets = {terms[-1] for predicate, terms in atoms if predicate == "receptacletype" and len(terms) == 2}
    if len(objects) != 1 or len(targets) != 1 or "" in objects | targets:
        return None
    return Goal(task_type, objects.pop(), targets.pop())


def _bad_goal(text: str, where: object, expected: str) -> DataCorrupt:
    return DataCorrupt(
        "not a goal of ALFWorld",
        where=where,
        got="(:goal" + " ".join(text.split()) + ")",
        expected=expected,
        fix="write the goal as official games of that kind do, or get the game file again",
    )
