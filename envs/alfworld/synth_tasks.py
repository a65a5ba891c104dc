"""Which tasks the generated ALFWorld games set: three splits like the official ones, without making a game."""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from agentgym_tok.envs.alfworld.floor_plans import FloorPlan, floor_plan
from agentgym_tok.envs.alfworld.household import LAMP, ROOMS, THINGS
from agentgym_tok.envs.alfworld.problem import TASK_TYPES
from agentgym_tok.envs.draws import Draws

__all__ = ["SOURCE", "SPLITS", "TREATMENTS", "TRIAL_NAME", "SynthTask", "synth_tasks"]

SOURCE = "ALFWorld-synth"

SPLITS: Mapping[str, Mapping[str, int]] = {
    split: dict(zip(TASK_TYPES, counts, strict=True))
    for split, counts in {
        "train": (790, 308, 650, 459, 533, 813),
        "valid_seen": (35, 13, 27, 16, 25, 24),
        "valid_unseen": (24, 18, 31, 23, 21, 17),
    }.items()
}
"""How many games of each kind a split has: as many as the official one (table 1 of arXiv:2010.03768)."""

TREATMENTS = {
    "pick_clean_then_place_in_recep": ("clean", "cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("heat", "heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("cool", "coolable", "Fridge"),
}
"""Where the object must be treated first: the verb, the trait it needs, the class of receptacle that does it."""

# Where each kind of task is set, in official proportions.
_SETTINGS = {
    "pick_and_place_simple": {"bathroom": 33, "bedroom": 30, "living room": 26, "kitchen": 11},
    "look_at_obj_in_light": {"bedroom": 84, "living room": 16},
    "pick_clean_then_place_in_recep": {"kitchen": 76, "bathroom": 24},
    "pick_heat_then_place_in_recep": {"kitchen": 1},
    "pick_cool_then_place_in_recep": {"kitchen": 1},
    "pick_two_obj_and_place": {"bathroom": 29, "bedroom": 29, "living room": 27, "kitchen": 15},
}
# Nobody is ever sent to put something into these.
_NO_TARGETS = frozenset({"BathtubBasin", "HandTowelHolder", "LaundryHamper", "SinkBasin", "TowelHolder", "TVStand"})

# Floor plans of each kind of room, counted from its first one: 108 for train and valid_seen, as many as official ones.
_SEEN_PLANS, _UNSEEN_PLANS = range(1, 28), range(28, 31)
_PLANS = {"train": _SEEN_PLANS, "valid_seen": _SEEN_PLANS, "valid_unseen": _UNSEEN_PLANS}


TRIAL_NAME = re.compile(r"trial_T0000000\d_\d{6}_\d{6}")
"""The names of generated trials; official ones have a date in the first place."""


@dataclass(frozen=True, slots=True)
class SynthTask:
    """Describe a task before its game is made.

    Args:
        split: Name of the split.
        index: Place in the split, from 0.
        task_type: The kind of task, by its official name.
        object_target: Class of the object that the goal wants, such as `"Apple"`.
        target: Class of the receptacle or lamp that it wants it at.
        plan: Number of the floor plan.
    """

    split: str
    index: int
    task_type: str
    object_target: str
    target: str
    plan: int

    @property
    def folder(self) -> str:
        """The task's folder in the official layout: the same task may be set in several trials."""
        return _folder(self.task_type, self.object_target, self.target, self.plan)

    @property
    def trial(self) -> str:
        """Name of the trial in the official form, but no official one: it fits `TRIAL_NAME`."""
        return f"trial_T{list(SPLITS).index(self.split):08d}_{self.plan:06d}_{self.index:06d}"

    @property
    def id(self) -> str:
        """Id of the task."""
        return f"{SOURCE}/{self.split}/{self.folder}/{self.index:04d}"


def _folder(task_type: str, object_target: str, target: str, plan: int) -> str:
    return f"{task_type}-{object_target}-None-{target}-{plan}"


@lru_cache(maxsize=len(SPLITS))
def synth_tasks(split: str) -> tuple[SynthTask, ...]:
    """List the tasks of a split.

    Any beginning of the list holds the kinds of task in the proportions of the whole.

    Args:
        split: One of `SPLITS`.
    """
    return tuple(_draw_task(split, index, task_type) for index, task_type in enumerate(_schedule(SPLITS[split])))


def _schedule(counts: Mapping[str, int]) -> list[str]:
    """Return each kind as often as counted, always the one that lags most behind its share."""
    total, done, order = sum(counts.values()), dict.fromkeys(counts, 0), []
    for made in range(1, total + 1):
        kind = max(counts, key=lambda kind: counts[kind] * made - total * done[kind])
        done[kind] += 1
        order.append(kind)
    return order


def _draw_task(split: str, index: int, task_type: str) -> SynthTask:
    draws = Draws(SOURCE, "task", split, index)
    while True:
        plan = ROOMS[draws.weighted(_SETTINGS[task_type])].first_plan + draws.pick(_PLANS[split])
        # A plan of few places may set no task of this kind; another one will.
        if choices := _choices(split, task_type, plan):
            object_target, targets = draws.pick(choices)
            return SynthTask(split, index, task_type, object_target, draws.pick(targets), plan)


@lru_cache(maxsize=2048)
def _choices(split: str, task_type: str, plan: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the objects that a plan can set this kind of task for, each with its targets.

    Both splits with the same plans have tasks of their own: every eighth one belongs to valid_seen.
    """
    held_out = {"train": False, "valid_seen": True}.get(split)
    choices = []
    for thing in floor_plan(plan).room.things:
        targets = tuple(
            target
            for target in _targets(floor_plan(plan), task_type, thing)
            if held_out in {None, zlib.crc32(_folder(task_type, thing, target, plan).encode()) % 8 == 0}
        )
        if targets:
            choices.append((thing, targets))
    return tuple(choices)


def _targets(plan: FloorPlan, task_type: str, thing: str) -> list[str]:
    kinds = dict.fromkeys(place.kind for place in plan.places)
    places, traits = THINGS[thing].places, THINGS[thing].traits
    # A goal object must be able to start in sight; every task can then be solved in ten commands.
    starts = {place.kind for place in plan.places if places.get(place.kind) and not place.openable}
    if task_type == "look_at_obj_in_light":
        lit = any(THINGS[LAMP].places.get(kind) for kind in kinds)
        return [LAMP] if lit and starts and "pickupable" in traits else []
    _verb, trait, tool = TREATMENTS.get(task_type, ("", "pickupable", ""))
    if trait not in traits or not THINGS[thing].returns or (tool and tool not in kinds):
        return []
    return [kind for kind in kinds if kind in places and starts - {kind} and kind not in {tool, *_NO_TARGETS}]
