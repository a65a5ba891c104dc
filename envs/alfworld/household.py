"""What stands in a room and what lies where: the tables behind the generated ALFWorld games.

The names and what fits into what are facts of the ALFWorld games; how often something stands somewhere is rounded
from counts over the official games and from household sense. All of it is data; `floor_plans.py` and `synth.py` draw
from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BESIDE", "LAMP", "OPENABLE", "ROOMS", "THINGS", "RoomKind", "Thing"]

LAMP = "DeskLamp"
"""The lamp of every look_at_obj_in_light task."""

OPENABLE = {"Cabinet": 0.82, "Drawer": 0.84, "Fridge": 1.0, "Microwave": 1.0, "Safe": 0.87}
"""How often a receptacle of a class has a door; the classes that are missing here are always open."""

BESIDE: Mapping[str, Mapping[str, float]] = {
    "Cabinet": {"Cabinet": 0.15},
    "CoffeeMachine": {"CounterTop": 0.3},
    "Drawer": {"Drawer": 0.15, "Dresser": 0.15, "SideTable": 0.1, "SinkBasin": 0.1},
    "GarbageCan": {"Cabinet": 0.05},
    "Shelf": {"Shelf": 0.1},
    "StoveBurner": {"StoveBurner": 0.6},
    "TVStand": {"Shelf": 0.2},
    "Toaster": {"CounterTop": 0.3},
}
"""How often a receptacle shares the location of the last one of another class, so that one walk reaches both."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Describe a class of objects.

    Args:
        places: The receptacle classes that hold it, with the weight of starting there; 0 means never at the start.
        traits: The PDDL predicates that hold for every object of the class.
        most: The largest number of copies that a room gets by itself.
        returns: It can be put into its places again; otherwise it only ever starts there.
    """

    places: Mapping[str, int]
    traits: tuple[str, ...]
    most: int = 3
    returns: bool = True


@dataclass(frozen=True, slots=True)
class RoomKind:
    """Describe a kind of room.

    Args:
        first_plan: The number before the first floor plan of this kind.
        furniture: Receptacle class -> (how often it stands there at all, fewest, most); neighbours come later.
        things: Object class -> how often it lies there at all.
    """

    first_plan: int
    furniture: Mapping[str, tuple[float, int, int]]
    things: Mapping[str, float]


def _thing(places: str, traits: str = "", *, most: int = 3, fixed: bool = False, returns: bool = True) -> Thing:
    words = places.split()
    weights = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    return Thing(weights, (*(() if fixed else ("pickupable",)), *traits.split()), most, returns and not fixed)


def _shares(**shares: str) -> dict[str, float]:
    # Keys such as p95 keep the table narrow: the classes behind it lie in 95 of 100 rooms.
    return {thing: int(share[1:]) / 100 for share, things in shares.items() for thing in things.split()}


_DISH = "cleanable coolable isReceptacleObject"

THINGS: Mapping[str, Thing] = {
    "AlarmClock": _thing("Desk 6 Shelf 3 SideTable 5 Dresser 3 DiningTable 2 CounterTop 1"),
    "Apple": _thing(
        "CounterTop 5 Fridge 5 DiningTable 4 GarbageCan 2 Microwave 2 SinkBasin 2 SideTable 2",
        "cleanable coolable heatable sliceable",
    ),
    "Book": _thing(
        "Bed 8 Desk 4 CoffeeTable 4 CounterTop 4 Dresser 3 Sofa 3 Drawer 2 SideTable 2 ArmChair 2 DiningTable 2 "
        "Cabinet 1 Shelf 1 Ottoman 1"
    ),
    "Bowl": _thing(
        "Cabinet 5 Desk 5 CounterTop 4 Fridge 3 DiningTable 3 Shelf 3 CoffeeTable 2 Dresser 2 SideTable 1 "
        "Microwave 1 SinkBasin 1",
        _DISH,
    ),
    "Box": _thing(
        "DiningTable 4 Sofa 4 CoffeeTable 4 Desk 3 Shelf 2 SideTable 2 Cabinet 1 Dresser 1 ArmChair 1 Ottoman 1",
        "isReceptacleObject",
    ),
    "Bread": _thing(
        "CounterTop 8 DiningTable 6 Fridge 2 SideTable 2 GarbageCan 0 Microwave 0", "coolable heatable sliceable"
    ),
    "ButterKnife": _thing("CounterTop 8 DiningTable 5 Drawer 2 SinkBasin 1 SideTable 1", "cleanable"),
    "CD": _thing(
        "Drawer 5 Desk 4 Dresser 3 SideTable 3 GarbageCan 2 Shelf 2 DiningTable 1 Cabinet 1 Safe 1 CounterTop 0"
    ),
    "Candle": _thing(
        "CounterTop 5 Toilet 5 SideTable 3 Cabinet 2 Drawer 2 CoffeeTable 2 DiningTable 2 Shelf 1 Cart 1 Dresser 1"
    ),
    "CellPhone": _thing(
        "Bed 4 Drawer 3 Desk 3 CounterTop 3 Dresser 2 SideTable 2 CoffeeTable 2 Sofa 2 DiningTable 1 Shelf 1 "
        "ArmChair 1 Safe 1 Ottoman 1"
    ),
    "Cloth": _thing(
        "BathtubBasin 5 Cabinet 4 CounterTop 3 Drawer 3 Shelf 1 SinkBasin 1 Toilet 1 Cart 1 Dresser 1 SideTable 1 "
        "ArmChair 0 Desk 0 DiningTable 0 GarbageCan 0 LaundryHamper 0",
        "cleanable",
    ),
    "CreditCard": _thing(
        "Drawer 4 Desk 3 Shelf 3 SideTable 3 Sofa 3 Dresser 2 ArmChair 2 CoffeeTable 2 CounterTop 2 DiningTable 2 "
        "Ottoman 1 Safe 0"
    ),
    "Cup": _thing(
        "Cabinet 5 Fridge 4 CounterTop 4 DiningTable 3 SinkBasin 2 SideTable 2 Microwave 1 Shelf 1", _DISH + " heatable"
    ),
    LAMP: _thing("Desk 5 SideTable 4 Dresser 3 Shelf 1 CoffeeTable 1", "toggleable", most=1, fixed=True),
    "DishSponge": _thing(
        "CounterTop 4 Cabinet 3 Drawer 3 DiningTable 2 SinkBasin 2 BathtubBasin 2 GarbageCan 1 Shelf 1 Toilet 1 "
        "SideTable 1 Cart 1",
        "cleanable",
    ),
    "Egg": _thing(
        "Fridge 5 CounterTop 4 SinkBasin 2 GarbageCan 2 Microwave 2 DiningTable 2 SideTable 1",
        "cleanable coolable heatable sliceable",
    ),
    "Fork": _thing("CounterTop 7 DiningTable 5 Drawer 4 SinkBasin 2 SideTable 1", "cleanable"),
    "Glassbottle": _thing("Cabinet 5 CounterTop 5 DiningTable 2 SinkBasin 1 Fridge 1 Shelf 1 Microwave 0"),
    "HandTowel": _thing(
        "HandTowelHolder 9 CounterTop 1 BathtubBasin 0 Cabinet 0 Cart 0 Drawer 0 GarbageCan 0 Shelf 0 SideTable 0 "
        "SinkBasin 0 Toilet 0",
        most=2,
    ),
    "HousePlant": _thing(
        "CounterTop 6 SideTable 4 DiningTable 3 CoffeeTable 2 Shelf 2 Desk 2 Dresser 1", most=1, fixed=True
    ),
    "Kettle": _thing("StoveBurner 5 CounterTop 3 Cabinet 3 DiningTable 1 SinkBasin 1 Shelf 1 SideTable 0", "cleanable"),
    "KeyChain": _thing(
        "Drawer 4 SideTable 3 Desk 3 CoffeeTable 3 Shelf 2 Dresser 2 Sofa 2 ArmChair 1 DiningTable 1 Safe 1 Ottoman 1 "
        "CounterTop 1"
    ),
    "Knife": _thing("CounterTop 8 DiningTable 5 Drawer 3 SinkBasin 1 SideTable 1", "cleanable"),
    "Ladle": _thing("CounterTop 6 Cabinet 4 Drawer 3 DiningTable 3 SinkBasin 1", "cleanable"),
    "Laptop": _thing(
        "Bed 8 Desk 3 Sofa 4 CoffeeTable 4 DiningTable 3 Dresser 2 ArmChair 1 SideTable 1 Ottoman 1 CounterTop 0"
    ),
    "Lettuce": _thing(
        "CounterTop 6 DiningTable 4 Fridge 4 SinkBasin 1 SideTable 1 GarbageCan 1", "cleanable coolable sliceable"
    ),
    "Mug": _thing(
        "CounterTop 5 Desk 5 CoffeeMachine 3 Cabinet 3 Fridge 2 DiningTable 2 Shelf 2 SideTable 2 Dresser 2 "
        "Microwave 1 SinkBasin 1",
        _DISH + " heatable",
    ),
    "Newspaper": _thing(
        "Sofa 4 CoffeeTable 4 DiningTable 3 SideTable 3 Shelf 2 Dresser 2 ArmChair 2 Drawer 1 Ottoman 1 Cabinet 1 "
        "GarbageCan 0"
    ),
    "Pan": _thing("StoveBurner 6 CounterTop 4 Cabinet 1 Fridge 1 DiningTable 1 SinkBasin 0 SideTable 0", _DISH),
    "PaperTowelRoll": _thing("CounterTop 6 DiningTable 2 GarbageCan 2 Toilet 3 Shelf 1 Cart 1", most=1, returns=False),
    "Pen": _thing(
        "Desk 5 Drawer 3 Dresser 3 Shelf 2 SideTable 3 CoffeeTable 3 CounterTop 2 DiningTable 2 GarbageCan 1"
    ),
    "Pencil": _thing(
        "Desk 5 Drawer 4 SideTable 3 CoffeeTable 3 Shelf 2 Dresser 2 CounterTop 2 DiningTable 1 GarbageCan 1"
    ),
    "PepperShaker": _thing("Cabinet 5 CounterTop 5 DiningTable 3 Drawer 2 Shelf 2 SideTable 1"),
    "Pillow": _thing("Bed 9 Sofa 7 ArmChair 2 Ottoman 1"),
    "Plate": _thing(
        "Cabinet 5 DiningTable 4 CounterTop 4 CoffeeTable 3 Shelf 2 Fridge 1 SideTable 1 SinkBasin 1 "
        "Dresser 0 Microwave 0",
        _DISH + " heatable",
    ),
    "Pot": _thing("StoveBurner 8 CounterTop 3 Fridge 1 DiningTable 1 Cabinet 1 Shelf 1 SinkBasin 0 SideTable 0", _DISH),
    "Potato": _thing(
        "CounterTop 5 Fridge 4 DiningTable 3 SinkBasin 2 Microwave 1 GarbageCan 1 SideTable 1",
        "cleanable coolable heatable sliceable",
    ),
    "RemoteControl": _thing(
        "CoffeeTable 4 Sofa 4 SideTable 3 DiningTable 2 Dresser 2 Drawer 2 ArmChair 2 Desk 3 Shelf 1 Ottoman 1 "
        "CounterTop 1"
    ),
    "SaltShaker": _thing("Cabinet 5 CounterTop 5 DiningTable 3 Drawer 2 Shelf 2 SideTable 1"),
    "SoapBar": _thing(
        "CounterTop 4 Toilet 3 SinkBasin 3 Cabinet 2 BathtubBasin 2 Drawer 2 GarbageCan 1 Shelf 1 SideTable 1 Cart 1",
        "cleanable",
    ),
    "SoapBottle": _thing(
        "CounterTop 5 Cabinet 5 Toilet 4 DiningTable 3 GarbageCan 2 Shelf 2 Drawer 1 SideTable 1 Cart 1"
    ),
    "Spatula": _thing("CounterTop 7 DiningTable 5 Drawer 3 SinkBasin 2 SideTable 1", "cleanable"),
    "Spoon": _thing("CounterTop 6 Drawer 5 DiningTable 4 SinkBasin 2 SideTable 1", "cleanable"),
    "SprayBottle": _thing(
        "CounterTop 5 Toilet 4 Cabinet 3 GarbageCan 2 Shelf 1 Cart 1 DiningTable 2 SideTable 1 Dresser 1 Drawer 0"
    ),
    "Statue": _thing("Shelf 5 CoffeeTable 4 CounterTop 4 DiningTable 3 SideTable 3 Dresser 3 Desk 2 Safe 0"),
    "TeddyBear": _thing("Bed 1", most=1, returns=False),
    "Television": _thing("TVStand 5 Dresser 4 CoffeeTable 1 SideTable 1", most=1, fixed=True),
    "TissueBox": _thing(
        "CoffeeTable 4 Desk 4 Shelf 3 CounterTop 3 SideTable 3 Drawer 2 DiningTable 2 Cabinet 1 TVStand 1 Dresser 1 "
        "Cart 1 Toilet 1 GarbageCan 1"
    ),
    "ToiletPaper": _thing(
        "Toilet 4 CounterTop 4 Cabinet 2 ToiletPaperHanger 2 Drawer 2 GarbageCan 1 Shelf 1 Dresser 1 Cart 1 SideTable 1"
    ),
    "Tomato": _thing(
        "Fridge 5 CounterTop 5 DiningTable 3 GarbageCan 2 SinkBasin 1 SideTable 2 Microwave 0",
        "cleanable coolable heatable sliceable",
    ),
    "Towel": _thing("TowelHolder 1", most=2),
    "Vase": _thing("Shelf 5 CounterTop 3 CoffeeTable 3 Cabinet 2 DiningTable 2 SideTable 2 Dresser 2 Desk 1 Safe 0"),
    "Watch": _thing("CoffeeTable 4 Drawer 3 SideTable 3 DiningTable 2 Dresser 2 Shelf 2 Desk 2 Safe 1"),
    "WateringCan": _thing("CoffeeTable 4 Shelf 3 SideTable 2 Cabinet 0 Desk 0 DiningTable 0 Drawer 0 Dresser 0"),
    "WineBottle": _thing("CounterTop 5 Cabinet 4 DiningTable 4 GarbageCan 1 Shelf 1 Fridge 1 SideTable 1", "coolable"),
}

ROOMS: Mapping[str, RoomKind] = {
    "kitchen": RoomKind(
        0,
        {
            "CounterTop": (1.0, 1, 4),
            "DiningTable": (0.5, 1, 2),
            "Shelf": (0.2, 2, 3),
            "SinkBasin": (1.0, 1, 1),
            "SideTable": (0.15, 1, 1),
            "Drawer": (0.95, 1, 9),
            "Fridge": (1.0, 1, 1),
            "Cabinet": (1.0, 4, 20),
            "GarbageCan": (1.0, 1, 1),
            "Microwave": (1.0, 1, 1),
            "StoveBurner": (1.0, 4, 4),
            "CoffeeMachine": (1.0, 1, 1),
            "Toaster": (1.0, 1, 1),
        },
        _shares(
            p95="Apple Bowl Bread ButterKnife Cup DishSponge Egg Fork Knife Lettuce Mug Pan PepperShaker Plate Pot "
            "Potato SaltShaker SoapBottle Spatula Spoon Tomato",
            p40="HousePlant Kettle Ladle PaperTowelRoll WineBottle",
            p15="Book CellPhone CreditCard Glassbottle Pen Pencil SprayBottle Statue Vase",
        ),
    ),
    "living room": RoomKind(
        200,
        {
            "ArmChair": (0.95, 1, 2),
            "CoffeeTable": (0.8, 1, 2),
            "DiningTable": (0.5, 1, 2),
            "SideTable": (0.8, 1, 3),
            "Dresser": (0.35, 1, 1),
            "Drawer": (0.8, 1, 8),
            "Cabinet": (0.15, 1, 6),
            "GarbageCan": (1.0, 1, 1),
            "Sofa": (1.0, 1, 2),
            "Desk": (0.05, 1, 1),
            "Ottoman": (0.15, 1, 1),
            "Safe": (0.1, 1, 1),
            "Shelf": (0.4, 1, 8),
            "TVStand": (0.45, 1, 1),
        },
        _shares(
            p95="Box CreditCard KeyChain Laptop Pillow RemoteControl Statue",
            p60="HousePlant Newspaper Television Vase Watch",
            p30="Book Bowl CellPhone DeskLamp Pen Pencil Plate TissueBox",
            p10="Candle WateringCan",
        ),
    ),
    "bedroom": RoomKind(
        300,
        {
            "ArmChair": (0.2, 1, 2),
            "Bed": (1.0, 1, 2),
            "Desk": (0.7, 1, 2),
            "DiningTable": (0.15, 1, 1),
            "SideTable": (0.65, 1, 2),
            "Dresser": (0.45, 1, 2),
            "Drawer": (0.95, 2, 10),
            "Cabinet": (0.15, 1, 4),
            "GarbageCan": (1.0, 1, 1),
            "LaundryHamper": (0.3, 1, 1),
            "CounterTop": (0.05, 1, 1),
            "Safe": (0.2, 1, 1),
            "Shelf": (0.65, 1, 8),
        },
        _shares(
            p95="AlarmClock Book CD CellPhone CreditCard KeyChain Laptop Pen Pencil Pillow",
            p70="DeskLamp",
            p50="Bowl Mug",
            p20="HousePlant RemoteControl Statue TeddyBear TissueBox",
            p10="Box Television Vase Watch",
        ),
    ),
    "bathroom": RoomKind(
        400,
        {
            "BathtubBasin": (0.7, 1, 1),
            "CounterTop": (0.85, 1, 2),
            "Cart": (0.1, 1, 1),
            "SinkBasin": (1.0, 1, 2),
            "SideTable": (0.1, 1, 1),
            "Dresser": (0.1, 1, 1),
            "Drawer": (0.55, 1, 8),
            "Cabinet": (0.5, 2, 5),
            "GarbageCan": (1.0, 1, 1),
            "HandTowelHolder": (1.0, 1, 2),
            "Shelf": (0.25, 1, 4),
            "Toilet": (1.0, 1, 1),
            "ToiletPaperHanger": (1.0, 1, 1),
            "TowelHolder": (1.0, 1, 2),
        },
        _shares(
            p95="Candle Cloth HandTowel SoapBar SoapBottle SprayBottle ToiletPaper Towel",
            p40="DishSponge TissueBox",
            p15="PaperTowelRoll",
        ),
    ),
}
