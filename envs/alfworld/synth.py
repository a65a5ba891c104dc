"""Generated ALFWorld games: as many as the official ones, made on the spot from their ids."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from agentgym_tok.envs.alfworld.floor_plans import FloorPlan, Place, floor_plan, spot
from agentgym_tok.envs.alfworld.game import Game
from agentgym_tok.envs.alfworld.household import LAMP, THINGS
from agentgym_tok.envs.alfworld.problem_writer import SENTENCES, Fact, write_problem
from agentgym_tok.envs.alfworld.synth_tasks import SOURCE, SPLITS, TREATMENTS, SynthTask, synth_tasks
from agentgym_tok.envs.draws import Draws
from agentgym_tok.errors import unknown_name

__all__ = ["SynthGames", "SynthProblem", "synth_problem"]

# How many objects a room holds.
_FEWEST, _MOST = 20, 50
# How many more objects there are like the one that the goal wants, with the weight of each number.
_MORE_COPIES = {0: 4, 1: 3, 2: 2, 3: 1}
# What stands in or on the first also stands in or on the second: official rooms list such objects in both.
_SPREADS = {"CoffeeMachine": "CounterTop", "StoveBurner": "StoveBurner"}
# What may lie in a dish or box that stands at the same place.
_SLIM = frozenset({"ButterKnife", "Fork", "Knife", "Newspaper", "Pen", "Pencil", "Spatula", "Spoon"})


@dataclass(frozen=True, slots=True)
class SynthProblem:
    """Hold a generated game as an official game file holds it.

    Args:
        task: What was to be generated.
        pddl_problem: The room and the goal in PDDL.
        task_text: The last line of the first observation, `Your task is to: ...`.
        walkthrough: Three to ten commands of which the last one wins.
    """

    task: SynthTask
    pddl_problem: str
    task_text: str
    walkthrough: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SynthGames:
    """Generate games of all six kinds of task in four kinds of room.

    Every game follows from its id alone, on each machine. `train` and `valid_seen` share 108 floor plans but no task;
    `valid_unseen` has 12 floor plans of its own.

    Args:
        split: `"train"` (3553 games), `"valid_seen"` (140) or `"valid_unseen"` (134).

    Raises:
        UnknownName: There is no such split.
    """

    split: str = "train"
    source: str = field(default=SOURCE, init=False)

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise unknown_name("split", self.split, SPLITS, where=SOURCE)

    def tasks(self) -> tuple[str, ...]:
        """Return the ids of all games of the split, without making them; any first part is a fair mix."""
        return _ids(self.split)

    def game(self, task: str) -> Game:
        """Make a game, or return it again.

        Args:
            task: One of `tasks()`.

        Raises:
            UnknownName: The split has no such task.
        """
        self._require(task)
        return _game(_by_id(self.split)[task])

    def goals(self, task: str) -> tuple[str, ...]:
        """Return no goals: nobody has seen these games.

        Raises:
            UnknownName: The split has no such task.
        """
        self._require(task)
        return ()

    def _require(self, task: str) -> None:
        if task not in _by_id(self.split):
            raise unknown_name("task", task, _by_id(self.split), where=f"{SOURCE}, split {self.split}")


@lru_cache(maxsize=len(SPLITS))
def _ids(split: str) -> tuple[str, ...]:
    return tuple(_by_id(split))


@lru_cache(maxsize=len(SPLITS))
def _by_id(split: str) -> dict[str, SynthTask]:
    return {task.id: task for task in synth_tasks(split)}


@lru_cache(maxsize=256)
def _game(task: SynthTask) -> Game:
    problem = synth_problem(task)
    return Game.from_problem(
        problem.pddl_problem, task_text=problem.task_text, walkthrough=problem.walkthrough, task=task.id
    )


def synth_problem(task: SynthTask) -> SynthProblem:
    """Generate the game of a task.

    The objects of the goal are set first, so that it can be reached and is not reached yet; the others are drawn
    around them.

    Args:
        task: One of `synth_tasks(split)`.
    """
    draws = Draws(SOURCE, "game", task.split, task.index)
    plan = floor_plan(task.plan)
    items = _lay_out(task, plan, draws)
    facts = [*_room_facts(plan), *_item_facts(items, plan), *_odd_facts(task, plan, items, draws)]
    words = {"object": task.object_target.lower(), "target": task.target.lower()}
    return SynthProblem(
        task,
        write_problem(task.trial, facts, task.task_type, task.object_target, task.target),
        f"Your task is to: {draws.pick(SENTENCES[task.task_type]).format(**words)}.",
        tuple(_walkthrough(task, plan, items)),
    )


@dataclass(frozen=True, slots=True)
class _Item:
    id: str
    kind: str
    place: Place


_Stands = Mapping[str, Sequence[Place]]  # class of receptacle -> where an object may start


def _stands(places: Iterable[Place]) -> _Stands:
    stands: dict[str, list[Place]] = {}
    for place in places:
        stands.setdefault(place.kind, []).append(place)
    return stands


def _lay_out(task: SynthTask, plan: FloorPlan, draws: Draws) -> list[_Item]:
    """Return the objects at their places, first those that the walkthrough takes."""
    anywhere = _stands(plan.places)
    goal = [(task.object_target, stands) for stands in _goal_stands(task, anywhere, draws)]
    others = _others(task, plan, anywhere, len(goal), draws)
    items: dict[str, _Item] = {}
    for kind, stands in (*goal, *((kind, anywhere) for kind, copies in others.items() for _ in range(copies))):
        place = draws.pick(stands[draws.weighted(_weights(kind, stands))])
        item_id = f"{kind}_bar_{spot(draws)}"
        while item_id in items:
            item_id = f"{kind}_bar_{spot(draws)}"
        items[item_id] = _Item(item_id, kind, place)
    return list(items.values())


def _weights(kind: str, stands: _Stands) -> dict[str, int]:
    return {stand: weight for stand, weight in THINGS[kind].places.items() if weight and stand in stands}


def _goal_stands(task: SynthTask, anywhere: _Stands, draws: Draws) -> list[_Stands]:
    """Return where each object of the goal's class may start, so that nothing is solved yet."""
    elsewhere = {kind: places for kind, places in anywhere.items() if kind != task.target}
    more = draws.weighted(_MORE_COPIES)
    if task.task_type == "pick_two_obj_and_place":
        # With one of the two in sight, two other doors at most are left: ten commands.
        in_sight = _stands(place for places in elsewhere.values() for place in places if not place.openable)
        return [in_sight, *[elsewhere] * max(more, 1)]
    # An object that must be treated first may wait at the target; one of its kind is always elsewhere.
    return [elsewhere, *[elsewhere if task.task_type == "pick_and_place_simple" else anywhere] * more]


def _others(task: SynthTask, plan: FloorPlan, anywhere: _Stands, wanted: int, draws: Draws) -> dict[str, int]:
    """Return how many objects of which other classes join the wanted ones."""
    copies = {
        kind: draws.between(1, THINGS[kind].most)
        for kind, share in plan.room.things.items()
        if (kind == task.target or draws.chance(share)) and kind != task.object_target and _weights(kind, anywhere)
    }
    while wanted + sum(copies.values()) > _MOST:
        copies[draws.pick([kind for kind, number in copies.items() if number > 1])] -= 1
    while wanted + sum(copies.values()) < _FEWEST:
        copies[draws.pick([kind for kind in copies if THINGS[kind].most > 2])] += 1
    return copies


def _room_facts(plan: FloorPlan) -> Iterator[Fact]:
    yield "atLocation", "agent1", plan.start
    for place in plan.places:
        yield "receptacleType", place.id, f"{place.kind}Type"
        yield "receptacleAtLocation", place.id, place.location
        if place.openable:
            yield "openable", place.id


def _item_facts(items: Sequence[_Item], plan: FloorPlan) -> Iterator[Fact]:
    for item in items:
        yield "objectType", item.id, f"{item.kind}Type"
        yield "inReceptacle", item.id, item.place.id
        yield "objectAtLocation", item.id, item.place.location
        for trait in THINGS[item.kind].traits:
            yield trait, item.id
    for stand in dict.fromkeys(place.kind for place in plan.places):
        for kind in dict.fromkeys(item.kind for item in items):
            if THINGS[kind].returns and stand in THINGS[kind].places:
                yield "canContain", f"{stand}Type", f"{kind}Type"


def _odd_facts(task: SynthTask, plan: FloorPlan, items: Sequence[_Item], draws: Draws) -> Iterator[Fact]:
    """Yield what makes official rooms odd, but nothing that touches the goal."""
    others = [item for item in items if item.kind != task.object_target]
    for item in others:
        if item.place.kind == "Fridge" and "coolable" in THINGS[item.kind].traits and draws.chance(0.06):
            yield "isCool", item.id
        if item.place.kind in _SPREADS and draws.chance(0.3):
            other_place = draws.pick(plan.of(_SPREADS[item.place.kind]))
            if other_place is not item.place:
                yield "inReceptacle", item.id, other_place.id
    pairs = [
        (inner, outer)
        for inner in others
        if inner.kind in _SLIM
        for outer in others
        if outer.place is inner.place and "isReceptacleObject" in THINGS[outer.kind].traits
    ]
    if pairs and draws.chance(0.4):
        inner, outer = draws.pick(pairs)
        yield "inReceptacleObject", inner.id, outer.id


def _names(plan: FloorPlan, items: Sequence[_Item]) -> dict[str, str]:
    """Return what the world calls each id: within a class the numbers count down in the order of the ids."""
    kinds = {place.id: place.kind.lower() for place in plan.places}
    kinds.update((item.id, item.kind.lower()) for item in items)
    counts: Counter[str] = Counter()
    names = {}
    for thing_id in sorted(kinds, key=str.lower, reverse=True):
        counts[kinds[thing_id]] += 1
        names[thing_id] = f"{kinds[thing_id]} {counts[kinds[thing_id]]}"
    return names


def _walkthrough(task: SynthTask, plan: FloorPlan, items: Sequence[_Item]) -> Iterator[str]:
    """Yield commands that win exactly with the last one."""
    names = _names(plan, items)
    at, shut = plan.start, {place.id for place in plan.places if place.openable}

    def go(place: Place, *, inside: bool = True) -> Iterator[str]:
        nonlocal at
        if place.location != at:
            yield f"go to {names[place.id]}"
        at = place.location
        if inside and place.id in shut:
            yield f"open {names[place.id]}"
            shut.remove(place.id)

    for item in items[: 2 if task.task_type == "pick_two_obj_and_place" else 1]:
        yield from go(item.place)
        yield f"take {names[item.id]} from {names[item.place.id]}"
        if task.target == LAMP:
            lamp = next(lamp for lamp in items if lamp.kind == LAMP)
            yield from go(lamp.place, inside=False)
            yield f"use {names[lamp.id]}"
            return
        if task.task_type in TREATMENTS:
            verb, _trait, tool = TREATMENTS[task.task_type]
            tool_place = plan.of(tool)[0]
            yield from go(tool_place, inside=False)
            yield f"{verb} {names[item.id]} with {names[tool_place.id]}"
        # The same one for both of two, and one without a door where there is any.
        target = min(plan.of(task.target), key=lambda place: place.openable)
        yield from go(target)
        yield f"move {names[item.id]} to {names[target.id]}"
