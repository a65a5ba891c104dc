"""The room of a game as small numbers: what never changes (`Room`) and what changes in play (`State`)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

from agentgym_tok.envs.alfworld.problem import Problem
from agentgym_tok.errors import DataCorrupt

__all__ = ["Action", "Room", "State"]

Action = tuple[str, tuple[int, ...]]
"""What a command does: the name of its rule, and the objects and receptacles that it acts on."""

K = TypeVar("K")
V = TypeVar("V", bound=Any)

# The predicates whose first argument is an object.
_OF_OBJECTS = (
    "objecttype",
    "objectatlocation",
    "inreceptacle",
    "inreceptacleobject",
    "isreceptacleobject",
    "pickupable",
    "cleanable",
    "heatable",
    "coolable",
    "sliceable",
    "toggleable",
    "iscool",
)

# Which receptacles treat objects: the rule, the types of the receptacles, the predicate of the objects.
_TREATMENTS = (
    ("clean", {"sinktype", "sinkbasintype"}, "cleanable"),
    ("heat", {"microwavetype"}, "heatable"),
    ("cool", {"fridgetype"}, "coolable"),
)

# Which objects can satisfy a goal at all.
_GOAL_PREDICATE = {
    "pick_clean_then_place_in_recep": "cleanable",
    "pick_heat_then_place_in_recep": "heatable",
    "pick_cool_then_place_in_recep": "coolable",
}


class State(NamedTuple):
    """Hold all that changes in play.

    It is immutable: a step makes a new one, so copies of an engine share it.

    Args:
        at: Location of the agent.
        held: Object in the hand.
        opened: Open receptacles.
        contents: For each receptacle its objects, ascending. An object can be in more than one receptacle.
        object_at: Pairs of object and location. Official games have pairs that contradict `contents`.
        taken: Pairs of object and the receptacle it was taken from, until it is put back there.
        clean: Cleaned objects.
        hot: Heated objects.
        cool: Cooled objects.
        sliced: Sliced objects.
        lit: Lamps that were switched on.
    """

    at: int
    held: int | None
    opened: frozenset[int]
    contents: tuple[tuple[int, ...], ...]
    object_at: frozenset[tuple[int, int]]
    taken: frozenset[tuple[int, int]] = frozenset()
    clean: frozenset[int] = frozenset()
    hot: frozenset[int] = frozenset()
    cool: frozenset[int] = frozenset()
    sliced: frozenset[int] = frozenset()
    lit: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Hold what never changes in a game, ready for the rules.

    Objects, receptacles and locations are numbered from 0 in the order of their ids, which is the order of all lists
    in the world's texts. The numbers in names count down in that order: the first of four cabinets is `cabinet 4`.

    Args:
        objects: Names of the objects.
        receptacles: Names of the receptacles.
        location: Location of each receptacle.
        receptacles_at: Receptacles at each location.
        anywhere: For each location the commands that no state can change: `go to`, `look`, `inventory`, `help`.
        fits: For each receptacle the objects that it can take.
        treats: For each receptacle what it does to which objects: `"clean"`, `"heat"`, `"cool"` or nothing.
        openable: Receptacles that open and close.
        pickupable: Objects that can be taken.
        sliceable: Objects that a knife can slice.
        toggleable: Objects that can be used: lamps.
        knives: Objects that slice.
        inside: For each object that is a receptacle itself, such as a mug, the objects in it.
        goal_type: One of the six official task types.
        goal_objects: Objects that the goal accepts, as far as that never changes.
        goal_receptacles: Receptacles that the goal accepts; none where it wants a lamp.
        goal_lamps: Lamps that the goal accepts.
        start: The state after a reset.
    """

    objects: tuple[str, ...]
    receptacles: tuple[str, ...]
    location: tuple[int, ...]
    receptacles_at: tuple[tuple[int, ...], ...]
    anywhere: tuple[dict[str, Action], ...]
    fits: tuple[frozenset[int], ...]
    treats: tuple[tuple[str, frozenset[int]] | None, ...]
    openable: frozenset[int]
    pickupable: frozenset[int]
    sliceable: frozenset[int]
    toggleable: frozenset[int]
    knives: frozenset[int]
    inside: Mapping[int, tuple[int, ...]]
    goal_type: str
    goal_objects: frozenset[int]
    goal_receptacles: tuple[int, ...]
    goal_lamps: frozenset[int]
    start: State

    @classmethod
    def from_problem(cls, problem: Problem, *, where: object = None) -> Self:
        """Number the ids of a problem.

        Args:
            problem: The facts and the goal.
            where: The file or task, for error messages.

        Raises:
            DataCorrupt: The facts contradict themselves, or lack a type or a location.
        """
        try:
            return cls._number(problem, where)
        except KeyError as error:
            raise _contradiction(
                f"no type or no location of {error.args[0]}",
                "a type and a location for every receptacle, a location for agent1",
                where,
            ) from error

    @classmethod
    def _number(cls, problem: Problem, where: object) -> Self:
        facts, goal = problem.facts, problem.goal
        object_type = _one_each(facts["objecttype"], "type", where)
        receptacle_type = _one_each(facts["receptacletype"], "type", where)
        spot_of = _one_each(facts["receptacleatlocation"], "location", where)
        agent_at = _one_each(facts["atlocation"], "location", where)
        # Two official games have an egg without a type: it is nowhere, but it takes a number among the names.
        o_of = _numbers({name for predicate in _OF_OBJECTS for name, _ in facts[predicate]})
        r_of = _numbers({*receptacle_type, *spot_of})
        l_of = _numbers({*spot_of.values(), *agent_at.values(), *(spot for _, spot in facts["objectatlocation"])})

        def those(predicate: str) -> frozenset[int]:
            return frozenset(o_of[name] for name, _ in facts[predicate])

        of_type = _grouped((kind, o_of[name]) for name, kind in object_type.items())
        receptacles_of_type = _grouped((receptacle_type[name], r) for name, r in r_of.items())
        at_spot = _grouped((l_of[spot_of[name]], r) for name, r in r_of.items())
        in_receptacle = _grouped((r_of[place], o_of[name]) for name, place in facts["inreceptacle"])
        in_object = _grouped((o_of[outer], o_of[inner]) for inner, outer in facts["inreceptacleobject"])
        holdable = _grouped(facts["cancontain"])
        fits = {kind: frozenset(o for held in holdable[kind] for o in of_type[held]) for kind in receptacles_of_type}
        treats = {kind: (rule, those(predicate)) for rule, kinds, predicate in _TREATMENTS for kind in kinds}
        receptacles_at = tuple(at_spot[spot] for spot in l_of.values())

        names = _names([*o_of, *r_of], where)
        receptacles = tuple(names[name] for name in r_of)
        toggleable = those("toggleable")
        wanted, targets = frozenset(of_type[goal.object_type]), goal.target_type
        if goal.task_type in _GOAL_PREDICATE:
            wanted &= those(_GOAL_PREDICATE[goal.task_type])
        return cls(
            objects=tuple(names[name] for name in o_of),
            receptacles=receptacles,
            location=tuple(l_of[spot_of[name]] for name in r_of),
            receptacles_at=receptacles_at,
            anywhere=_anywhere(receptacles, receptacles_at),
            fits=tuple(fits[receptacle_type[name]] for name in r_of),
            treats=tuple(treats.get(receptacle_type[name]) for name in r_of),
            openable=frozenset(r_of[name] for name, _ in facts["openable"]),
            pickupable=those("pickupable"),
            sliceable=those("sliceable"),
            toggleable=toggleable,
            knives=frozenset(of_type["knifetype"] + of_type["butterknifetype"]),
            inside={o: in_object[o] for o in those("isreceptacleobject")},
            goal_type=goal.task_type,
            goal_objects=wanted,
            goal_receptacles=receptacles_of_type[targets],
            goal_lamps=toggleable.intersection(of_type[targets]),
            start=State(
                at=l_of[agent_at["agent1"]],
                held=None,
                opened=frozenset(),
                contents=tuple(in_receptacle[r] for r in r_of.values()),
                object_at=frozenset((o_of[name], l_of[spot]) for name, spot in facts["objectatlocation"]),
                cool=those("iscool"),
            ),
        )


def _one_each(pairs: Iterable[tuple[str, str]], what: str, where: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise _contradiction(f"{name} with {what} {found[name]} and {value}", f"one {what} each", where)
    return found


def _numbers(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}


def _grouped(pairs: Iterable[tuple[K, V]]) -> Mapping[K, tuple[V, ...]]:
    """Gather the values of each key, once each and ascending; a key that has none has an empty tuple."""
    found: defaultdict[K, set[V]] = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return defaultdict(tuple, {key: tuple(sorted(values)) for key, values in found.items()})


def _names(ids: Iterable[str], where: object) -> dict[str, str]:
    """Name every id as the world calls it, such as `cabinet 4`."""
    found = {}
    last: Counter[str] = Counter()
    for name in sorted(ids, reverse=True):
        kind, bar, _ = name.partition("_bar_")
        if not bar:
            raise _contradiction(f"the id {name}", "ids such as Mug_bar__plus_01_dot_20_bar_...", where)
        if "basin" in name:
            kind += "basin"
        last[kind] += 1
        found[name] = f"{kind} {last[kind]}"
    return found


def _anywhere(receptacles: Sequence[str], receptacles_at: Iterable[Sequence[int]]) -> tuple[dict[str, Action], ...]:
    go_to = [f"go to {name}" for name in receptacles]
    every: dict[str, Action] = {command: ("go", (r,)) for r, command in enumerate(go_to)}
    every |= {command: (command, ()) for command in ("help", "inventory", "look")}
    every = dict(sorted(every.items()))
    found = []
    for here in receptacles_at:
        commands = every.copy()
        for r in here:
            # Fast Downward prunes a move to where one is: no `go to` between receptacles at one location either.
            del commands[go_to[r]]
        found.append(commands)
    return tuple(found)


def _contradiction(got: str, expected: str, where: object) -> DataCorrupt:
    return DataCorrupt(
        "an ALFWorld problem that contradicts itself",
        where=where,
        got=got,
        expected=expected,
        fix="correct the facts in (:init ...), or get the game file again",
    )
