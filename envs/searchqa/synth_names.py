"""Invented names for the things of the generated world, many of them nearly the same."""

import re
from collections.abc import Iterable

from agentgym_tok.envs.draws import Draws

__all__ = ["Names"]

_PARTS = {
    part: tuple(words.split())
    for part, words in {
        "beginning": "Ba Bel Bor Cal Cor Dar Del Dun El Fa Fen Gal Gor Hal Har Il Jor Ka Kel Lan Lor Mar Mel Nor Or Os "
        "Pel Quin Ral Ros Sal Sel Tal Tor Ul Val Vor Wen Yar Zel",
        "middle": "ba da del den di dra fi ga ka la len li ma mi na ne ni ra ren ri sa se ta ti va ve vi",
        "town": "bridge brook burg by dale field ford gate ham haven holm mouth port stead ton vik wick",
        "surname": "berg dahl den elin feld gren lund man mark nik ov quist sen skar ström tal vik win",
        "given": "Ada Alvin Anka Arno Berta Bruno Carla Caspar Dora Edvin Elsa Emil Frida Georg Greta Hanna Hugo Ida "
        "Ivar Jana Jonas Karin Konrad Lena Lukas Magda Marten Mira Nils Olga Oskar Petra Rasmus Rita Sander Selma "
        "Stefan Tilda Ulrik Vera Viktor Wanda",
        "adjective": "Amber Blind Broken Burning Clever Crooked Distant Drowned Empty Faithful Frozen Gentle Golden "
        "Hidden Hollow Humble Iron Lame Last Lonely Lost Mute Narrow Painted Pale Patient Proud Quiet Restless Salted "
        "Scarlet Silent Sleeping Stubborn Sunken Tall Thirsty Wandering Winter Wooden",
        "noun": "Anchor Baker Bell Bridge Candle Captain Clock Compass Crown Ferry Fiddle Fox Garden Gate Hammer "
        "Harbour Hare Heron Key Ladder Lantern Lighthouse Meadow Mill Mirror Needle Nightingale Oak Orchard Owl Paper "
        "Raven Sailor Shepherd Staircase Stone Stranger Thief Tower Watchman Weaver Well Window",
    }.items()
}
_PATTERNS = {
    "book": "The {adjective} {noun}",
    "feast": "Feast of {beginning}{middle}{middle}",
    "guild": "Guild of {beginning}{middle}{middle}",
    "lake": "Lake {beginning}{middle}{middle}",
    "person": "{given} {beginning}{middle}{surname}",
    "river": "River {beginning}{middle}{middle}",
    "ship": "{adjective} {beginning}{middle}",
    "town": "{beginning}{middle}{town}",
}
_VARIANTS = {
    "town": ("New {}", "Upper {}", "{}s", "{}en"),
    "river": ("Little {}", "{}a"),
    "lake": ("Little {}",),
    "person": ("{} the Younger", "{}sen"),
    "book": ("{}s", "{} Returns"),
    "ship": ("{} II",),
    "guild": ("New {}",),
    "feast": ("Little {}",),
}
_TWINS = 0.15
_PART = re.compile(r"{(\w+)}")


class Names:
    """Draw names that no other thing has.

    Args:
        draws: Makes the choices.
        taken: Names that things of another world have.
    """

    def __init__(self, draws: Draws, taken: Iterable[str] = ()) -> None:
        self._draws = draws
        self._by_kind: dict[str, list[str]] = {}
        self._taken = set(map(_key, taken))

    def draw(self, kind: str) -> str:
        """Return a name; one of seven is nearly that of an earlier thing of the same kind.

        Args:
            kind: What is named, such as `"town"`.
        """
        earlier = self._by_kind.setdefault(kind, [])
        while True:
            twin = bool(earlier) and self._draws.chance(_TWINS)
            name = self._draws.pick(_VARIANTS[kind]).format(self._draws.pick(earlier)) if twin else self._fresh(kind)
            if _key(name) not in self._taken:
                self._taken.add(_key(name))
                if not twin:
                    earlier.append(name)
                return name

    def _fresh(self, kind: str) -> str:
        return _PART.sub(lambda match: self._draws.pick(_PARTS[match[1]]), _PATTERNS[kind])


def _key(name: str) -> str:
    """Return a name as scores see it, which know neither case nor articles."""
    return name.lower().removeprefix("the ")
