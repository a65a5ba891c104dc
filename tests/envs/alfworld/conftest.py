"""Fixtures for ALFWorld: a small room that holds every quirk, and the official games."""

import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.alfworld.game import Game

GOALS = {
    "pick_and_place_simple": "(inReceptacle ?o ?r) (objectType ?o AppleType) (receptacleType ?r CabinetType)",
    "pick_clean_then_place_in_recep": (
        "(cleanable ?o) (objectType ?o MugType) (receptacleType ?r CabinetType) (isClean ?o) (inReceptacle ?o ?r)"
    ),
    "pick_heat_then_place_in_recep": (
        "(heatable ?o) (objectType ?o MugType) (receptacleType ?r CabinetType) (isHot ?o) (inReceptacle ?o ?r)"
    ),
    "pick_cool_then_place_in_recep": (
        "(coolable ?o) (objectType ?o MugType) (receptacleType ?r CabinetType) (isCool ?o) (inReceptacle ?o ?r)"
    ),
    "pick_two_obj_and_place": (
        "(objectType ?o1 AppleType) (receptacleType ?r FridgeType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and "
        "(not (= ?o1 ?o2)) (objectType ?o2 AppleType) (receptacleType ?r FridgeType) (inReceptacle ?o2 ?r)))"
    ),
    "look_at_obj_in_light": (
        "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType) "
        "(toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
        "(exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o)))"
    ),
}

# Receptacle: type, location, opens. The two cabinets stand at one location, and so do sidetable and drawer.
RECEPTACLES = {
    "CounterTop1": ("CounterTop", 1, False),
    "Fridge1": ("Fridge", 2, True),
    "Microwave1": ("Microwave", 3, True),
    "Sink1_SinkBasin": ("SinkBasin", 4, False),
    "Cabinet1": ("Cabinet", 5, True),
    "Cabinet2": ("Cabinet", 5, False),
    "SideTable1": ("SideTable", 6, False),
    "Drawer1": ("Drawer", 6, True),
    "Bathtub1_SinkBasin": ("SinkBasin", 7, False),
    "Bathtub2_BathtubBasin": ("BathtubBasin", 8, False),
}

# Object: receptacles, locations, what can be done with it.
ALL = "pickupable cleanable heatable coolable sliceable"
OBJECTS = {
    "Apple1": (["CounterTop1"], [1], ALL),
    "Apple2": (["CounterTop1"], [1], ALL),
    "Knife1": (["CounterTop1"], [1], "pickupable cleanable"),
    "Mug1": (["CounterTop1"], [1], "pickupable cleanable heatable coolable isReceptacleObject"),
    "Pan1": (["CounterTop1", "Cabinet2"], [1], "pickupable cleanable"),
    "Potato1": (["Fridge1"], [1, 2], ALL),
    "Spoon1": (["Drawer1"], [6], "pickupable"),
    "GlassBottle1": (["SideTable1"], [6], "pickupable isCool"),
    "DeskLamp2": (["Drawer1"], [6], "toggleable"),
    "DeskLamp1": ([], [1], "toggleable"),
    "FloorLamp1": (["SideTable1"], [6], "toggleable pickupable"),
    "Egg1": ([], [], "pickupable"),
    "Sink1": ([], [4], ""),
}
FITS = {
    "CounterTop": "Apple Knife Mug Pan Potato",
    "Fridge": "Apple Mug Potato",
    "Microwave": "Apple Mug",
    "SinkBasin": "Apple Knife Mug",
    "Cabinet": "Apple Mug Pan",
    "SideTable": "FloorLamp GlassBottle",
    "Drawer": "Spoon",
}


def _id(name: str) -> str:
    kind, _, suffix = name.partition("_")
    return f"{kind[:-1]}_bar__plus_0{kind[-1]}_dot_00_bar_00_dot_00" + (f"_bar_{suffix}" if suffix else "")


def _kitchen_problem(task_type: str, *more: str) -> str:
    facts = ["(atLocation agent1 loc_bar_0)", f"(inReceptacleObject {_id('Spoon1')} {_id('Mug1')})", *more]
    for name, (kind, spot, opens) in RECEPTACLES.items():
        facts += [f"(receptacleType {_id(name)} {kind}Type)", f"(receptacleAtLocation {_id(name)} loc_bar_{spot})"]
        facts += [f"(openable {_id(name)})"] if opens else []
    for name, (places, spots, abilities) in OBJECTS.items():
        facts += [f"(objectType {_id(name)} {name[:-1]}Type)"] if name != "Egg1" else []
        facts += [f"(inReceptacle {_id(name)} {_id(place)})" for place in places]
        facts += [f"(objectAtLocation {_id(name)} loc_bar_{spot})" for spot in spots]
        facts += [f"({ability} {_id(name)})" for ability in abilities.split()]
    facts += [f"(canContain {place}Type {name}Type)" for place, names in FITS.items() for name in names.split()]
    goal = GOALS[task_type]
    if task_type == "pick_two_obj_and_place":
        goal = f"(exists (?r - receptacle) (exists (?o1 - object) (and {goal})))"
    elif task_type != "look_at_obj_in_light":
        goal = f"(exists (?r - receptacle) (exists (?o - object) (and {goal})))"
    init = "\n        ".join(facts)
    head = "(define (problem plan_k)\n(:domain alfred)\n(:objects\nagent1 - agent)\n"
    return f"{head}(:init\n{init}\n)\n(:goal (and {goal})))\n"


WALKTHROUGH = ("go to countertop 1", "take apple 1 from countertop 1", "go to cabinet 1", "move apple 1 to cabinet 1")


@pytest.fixture
def kitchen() -> Callable[..., Game]:
    """Return a maker of a game in the small room: `kitchen(task_type, *more_facts, task=...)`."""

    def make(task_type: str = "pick_and_place_simple", *more: str, task: str = "kitchen") -> Game:
        return Game.from_problem(
            _kitchen_problem(task_type, *more),
            task_text="Your task is to: put some apple on cabinet.",
            walkthrough=WALKTHROUGH,
            task=task,
        )

    return make


@pytest.fixture
def kitchen_parts() -> dict[str, Any]:
    """Return what an official file of the small room's first game holds."""
    grammar = 'grammar :: """ {"task": [ { "rhs": "Your task is to: put some \\"apple\\" on cabinet." } ]} """; '
    return {
        "pddl_domain": "(define (domain alfred))",
        "grammar": grammar + 'action PutObject { template :: "move {o} to {r}"; }',
        "pddl_problem": _kitchen_problem("pick_and_place_simple"),
        "solvable": True,
        "walkthrough": list(WALKTHROUGH),
    }


@pytest.fixture
def write_game(kitchen_parts: dict[str, Any]) -> Callable[..., Path]:
    """Return a writer of `game.tw-pddl` into a folder, with some parts replaced or, by None, left out."""

    def write(folder: Path, **changes: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "game.tw-pddl"
        parts = {key: part for key, part in {**kitchen_parts, **changes}.items() if part is not None}
        path.write_text(json.dumps(parts))
        return path

    return write


@pytest.fixture(scope="session")
def official(shared: Path) -> Path:
    """Return a folder for ALFWORLD_DATA with the official splits valid_seen, valid_unseen and valid_train.

    The archives are unpacked once per machine; the folder bears their sizes and times, so new archives get a new one.
    """
    archives = [shared / "alfworld" / f"alfworld_json_2.1.1_{name}.tar.xz" for name in ("valid", "valid_train")]
    if not all(archive.is_file() for archive in archives):
        pytest.skip(f"no official ALFWorld games at {shared / 'alfworld'}")
    key = hashlib.sha256(
        repr([(a.name, a.stat().st_size, a.stat().st_mtime_ns) for a in archives]).encode()
    ).hexdigest()
    folder = Path(tempfile.gettempdir(), f"agentgym-tok-test-data-{key[:16]}")
    if not folder.is_dir():
        unpacked = Path(tempfile.mkdtemp(prefix="agentgym-tok-test-data-"))
        for archive in archives:
            with tarfile.open(archive) as packed:
                packed.extractall(unpacked, filter="data")
        try:
            unpacked.rename(folder)
        except OSError:
            # Another test process was faster.
            shutil.rmtree(unpacked)
    return folder
