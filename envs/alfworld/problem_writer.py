"""Write a room and its goal down in the PDDL of official ALFWorld games."""

from collections.abc import Sequence

__all__ = ["SENTENCES", "Fact", "write_problem"]

Fact = tuple[str, ...]
"""A predicate and its one or two arguments."""

SENTENCES = {
    "pick_and_place_simple": ("put some {object} on {target}", "put a {object} in {target}"),
    "look_at_obj_in_light": ("look at {object} under the {target}", "examine the {object} with the {target}"),
    **{
        task_type: (f"put a {state} {{object}} in {{target}}", f"{verb} some {{object}} and put it in {{target}}")
        for task_type, verb, state in (
            ("pick_clean_then_place_in_recep", "clean", "clean"),
            ("pick_heat_then_place_in_recep", "heat", "hot"),
            ("pick_cool_then_place_in_recep", "cool", "cool"),
        )
    },
    "pick_two_obj_and_place": ("put two {object} in {target}", "find two {object} and put them in {target}"),
}
"""The two official ways to say each kind of task; the names are those of the classes in lower case."""

# The domain and the six goals call these by name, so each problem declares them.
_ALWAYS_OTYPES = ("KnifeType", "ButterKnifeType")
_ALWAYS_RTYPES = ("SinkBasinType", "SinkType", "MicrowaveType", "FridgeType")


def _placed(variable: str) -> str:
    return f"(objectType {variable} {{object}}Type) (receptacleType ?r {{target}}Type) (inReceptacle {variable} ?r)"


def _one_placed(state: str = "") -> str:
    return f"(exists (?r - receptacle) (exists (?o - object) (and {state}{_placed('?o')})))"


_GOALS = {
    "pick_and_place_simple": _one_placed(),
    "look_at_obj_in_light": (
        "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot {target}Type) "
        "(toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
        "(exists (?o - object ?a - agent) (and (objectType ?o {object}Type) (holds ?a ?o)))"
    ),
    "pick_clean_then_place_in_recep": _one_placed("(cleanable ?o) (isClean ?o) "),
    "pick_heat_then_place_in_recep": _one_placed("(heatable ?o) (isHot ?o) "),
    "pick_cool_then_place_in_recep": _one_placed("(coolable ?o) (isCool ?o) "),
    "pick_two_obj_and_place": (
        f"(exists (?r - receptacle) (exists (?o1 - object) (and {_placed('?o1')} "
        f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {_placed('?o2')})))))"
    ),
}


_KINDS = ("agent", "otype", "rtype", "object", "receptacle", "location")
"""The kinds of names, in the order in which they are declared."""

# The kinds of a predicate's arguments; what no line names is declared by another fact.
_DECLARES = {
    "atLocation": ("agent", "location"),
    "objectType": ("object", "otype"),
    "receptacleType": ("receptacle", "rtype"),
    "receptacleAtLocation": ("receptacle", "location"),
    "objectAtLocation": ("object", "location"),
    "canContain": ("rtype", "otype"),
}


def write_problem(name: str, facts: Sequence[Fact], task_type: str, object_target: str, target: str) -> str:
    """Write a `pddl_problem` as official game files hold it.

    Args:
        name: Name of the trial, such as `"trial_T20190909_044715_250790"`.
        facts: What holds at the start, in the spelling of official files.
        task_type: The kind of task, which gives the form of the goal.
        object_target: Class of the object that the goal wants, such as `"Pencil"`.
        target: Class of the receptacle or lamp that it wants it at.

    Returns:
        The text, which declares every name that occurs in its facts or goal.
    """
    declared: dict[str, dict[str, None]] = {kind: {} for kind in _KINDS}
    declared["otype"] = dict.fromkeys(_ALWAYS_OTYPES)
    declared["rtype"] = dict.fromkeys(_ALWAYS_RTYPES)
    for predicate, *arguments in facts:
        for kind, argument in zip(_DECLARES.get(predicate, ()), arguments, strict=False):
            declared[kind][argument] = None
    goal = _GOALS[task_type].format(object=object_target, target=target)
    return (
        f"\n(define (problem plan_{name})\n(:domain alfred)\n(:objects\n"
        + "".join(f"    {known} - {kind}\n" for kind, names in declared.items() for known in names)
        + ")\n(:init\n"
        + "".join(f"    ({' '.join(fact)})\n" for fact in facts)
        + f")\n(:goal\n    (and\n        {goal}\n    )\n)\n)\n"
    )
