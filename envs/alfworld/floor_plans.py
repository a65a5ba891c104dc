"""The rooms of the generated ALFWorld games: receptacles at their locations, one floor plan per number."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from agentgym_tok.envs.alfworld.household import BESIDE, OPENABLE, ROOMS, RoomKind
from agentgym_tok.envs.draws import Draws

__all__ = ["FloorPlan", "Place", "floor_plan", "spot"]

_FEWEST, _MOST = 10, 40
# The part of a sink or tub that holds things bears the name of the whole with the part behind the coordinates.
_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}


@dataclass(frozen=True, slots=True)
class Place:
    """Describe one receptacle.

    Args:
        id: Its id in the official form.
        kind: Its class, such as `"Cabinet"`.
        location: Id of the location it is reached from; neighbours may share one.
        openable: It has a door, shut at the start.
    """

    id: str
    kind: str
    location: str
    openable: bool


@dataclass(frozen=True, slots=True)
class FloorPlan:
    """Describe a room without its objects.

    Args:
        number: The scene number; its hundreds tell the kind of room.
        room: The kind of room.
        places: All receptacles.
        start: Id of the location the agent starts from; no receptacle is there.
    """

    number: int
    room: RoomKind
    places: tuple[Place, ...]
    start: str

    def of(self, kind: str) -> list[Place]:
        """Return the receptacles of one class."""
        return [place for place in self.places if place.kind == kind]


@lru_cache(maxsize=256)
def floor_plan(number: int) -> FloorPlan:
    """Return the floor plan of a number, the same one at all times.

    Args:
        number: 1 and up for kitchens, 201 and up for living rooms, 301 for bedrooms, 401 for bathrooms.
    """
    room = max((room for room in ROOMS.values() if room.first_plan < number), key=lambda room: room.first_plan)
    draws = Draws("ALFWorld-synth", "floor plan", number)
    kinds: list[str] = []
    while not _FEWEST <= len(kinds) <= _MOST:
        kinds = [
            kind
            for kind, (share, least, most) in room.furniture.items()
            if draws.chance(share)
            for _ in range(draws.between(least, most))
        ]
    # Distinct by construction: a place may stand where another one does, but has no twin.
    locations = _distinct(_location, draws, len(kinds) + 1)
    spots = _distinct(spot, draws, len(kinds))
    last: dict[str, str] = {}
    places = []
    for kind, where, alone in zip(kinds, spots, locations, strict=False):
        neighbours = BESIDE.get(kind, {}).items()
        beside = next((other for other, share in neighbours if other in last and draws.chance(share)), None)
        last[kind] = last[beside] if beside else alone
        place_id = f"{_BASINS[kind]}_bar_{where}_bar_{kind}" if kind in _BASINS else f"{kind}_bar_{where}"
        places.append(Place(place_id, kind, last[kind], draws.chance(OPENABLE.get(kind, 0.0))))
    return FloorPlan(number, room, tuple(places), locations[-1])


def spot(draws: Draws) -> str:
    """Return the coordinates part of an id, such as `_plus_01_dot_20_bar__plus_00_dot_91_bar__minus_02_dot_05`."""
    return "_bar_".join((_coordinate(draws, 399), _coordinate(draws, 199, signs=("_plus_",)), _coordinate(draws, 399)))


def _coordinate(draws: Draws, most: int, signs: tuple[str, ...] = ("_minus_", "_plus_")) -> str:
    metres, hundredths = divmod(draws.between(0, most), 100)
    return f"{draws.pick(signs)}{metres:02d}_dot_{hundredths:02d}"


def _location(draws: Draws) -> str:
    steps = [f"_minus_{-step}" if step < 0 else str(step) for step in (draws.between(-12, 12), draws.between(-12, 12))]
    return f"loc_bar_{steps[0]}_bar_{steps[1]}_bar_{draws.between(0, 3)}_bar_{draws.pick((0, 30, 45, 60))}"


def _distinct(make: Callable[[Draws], str], draws: Draws, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[make(draws)] = None
    return list(found)
