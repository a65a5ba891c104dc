"""A player of ALFWorld who finds out: it looks where such things usually are, and does with them what the task says."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from itertools import chain

from agentgym_tok.envs.alfworld.memory import Memory, kind
from agentgym_tok.envs.alfworld.wish import TOOLS, Plan, Wish, read_wish

__all__ = ["ALFWorldExplorer", "usual_places"]

_DOORS = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
# Words of a command such as `move mug 1 to desk 2`.
_WORDS = 6
# What was never seen at a place in the train games may still be there.
_RARELY = 0.5


@lru_cache(maxsize=1)
def usual_places() -> Mapping[str, Mapping[str, int]]:
    """Return how often a place of a class holds a thing of a class at the start, in thousandths.

    Counted over the official train games by `scripts/count_alfworld_places.py`; what never happens is missing.
    """
    table = resources.files("agentgym_tok.envs.alfworld").joinpath("places.json")
    shares: dict[str, dict[str, int]] = json.loads(table.read_text(encoding="utf-8"))
    return shares


class ALFWorldExplorer:
    """Do the task by what the texts say: find the thing, take it, treat it, bring it; see `Explorer`.

    Where the task is in a person's words, more than one class of things and of places may be meant; each is tried,
    the likeliest first, until the world says that it is over. What it takes the words for it says before it begins,
    and whenever it takes them for something else.
    """

    def __init__(self) -> None:
        self._memory = Memory("")
        self._wish = Wish(())
        self._spent: set[Plan] = set()
        self._meant = self._said = ""

    @property
    def thought(self) -> str:
        """What it takes the task for, where it has not said so yet; see `Explorer.thought`."""
        return "" if self._meant == self._said else self._meant

    def reset(self, observation: str) -> None:
        """Begin an episode; see `Explorer.reset`."""
        self._memory = Memory(observation)
        places = dict.fromkeys(kind(place) for place in self._memory.places)
        self._wish = read_wish(observation, usual_places(), tuple(places))
        self._spent = set()
        self._meant = self._said = ""

    def follow(self, command: str, observation: str) -> None:
        """Learn what was done and answered; see `Explorer.follow`."""
        if self._wish.ambiguous:
            self.act()  # so that its thoughts do not depend on whether somebody asked
        self._said = self._meant
        self._memory.read(command, observation)
        self._spent.update(self._fulfilled(), self._refuted(command))

    def act(self) -> str:
        """Return the first idea that has not failed already; see `Explorer.act`."""
        promising = self._memory.promising
        for reading in self._wish.readings:
            plans = self._left(reading, kind(self._memory.held or ""))
            command = next(filter(promising, self._pursue(plans)), None) if plans else None
            if command is not None:
                verb, _, rest = command.partition(" ")
                self._meant = self._wish.told(self._left(plans, rest.split()[0]) if verb == "take" else plans)
                return command
        return next(filter(promising, self._put_down()), "look")

    # ---- what to do

    def _left(self, reading: Sequence[Plan], thing: str) -> list[Plan]:
        """Return the plans that are not spent: those with things of a class, where there are such."""
        plans = [plan for plan in reading if plan not in self._spent]
        return [plan for plan in plans if plan.thing == thing] or plans

    def _pursue(self, plans: Sequence[Plan]) -> Iterator[str]:
        held = self._memory.held
        things = list(dict.fromkeys(plan.thing for plan in plans))
        if held is None:
            yield from self._fetch(things, plans)
            yield from self._search(things)
        elif kind(held) not in things:
            if any(True for _ in chain(self._fetch(things, plans), self._search(things))):
                yield from self._put_down()
        elif self._wish.lamp:
            yield from self._light([plan.target for plan in plans])
        else:
            for plan in plans:
                yield from self._bring(held, plan)

    def _fetch(self, things: Sequence[str], plans: Sequence[Plan]) -> Iterator[str]:
        """Take a thing that is wanted from where it was seen."""
        memory = self._memory
        first = {plan.thing: plan for plan in reversed(plans)}
        known = [
            (things.index(kind(thing)), not memory.here(place), place in memory.closed, place, thing)
            for place, inside in memory.inside.items()
            for thing in inside
            if kind(thing) in first and not self._settled(thing, place, first[kind(thing)])
        ]
        for *_, place, thing in sorted(known, key=lambda item: item[:3]):
            yield from self._at(place, f"take {thing} from {place}")

    def _search(self, things: Sequence[str]) -> Iterator[str]:
        """Look where it was not looked yet, first where the chance for a step is best."""
        memory, shares = self._memory, usual_places()

        def chance(place: str) -> float:
            likely = max((shares.get(thing, {}).get(kind(place), _RARELY) for thing in things), default=_RARELY)
            steps = (not memory.here(place)) + (place in memory.closed or kind(place) in _DOORS)
            return likely / max(steps, 1)

        unseen = [place for place in memory.places if place not in memory.inside]
        for place in sorted(unseen, key=chance, reverse=True):
            yield from self._reach(place)

    def _light(self, lamps: Sequence[str]) -> Iterator[str]:
        """Switch on a lamp, the thing in the hand."""
        for place, inside in self._memory.inside.items():
            for lamp in inside:
                if kind(lamp) in lamps:
                    yield from self._at(place, f"use {lamp}", inside=False)
        yield from self._search(lamps)

    def _bring(self, held: str, plan: Plan) -> Iterator[str]:
        """Treat the thing where that is wanted, and put it where it belongs."""
        if not self._memory.treated(held, plan.verb):
            for place in self._of(TOOLS[plan.verb], plan):
                yield from self._at(place, f"{plan.verb} {held} with {place}", inside=False)
            return
        for place in self._of(plan.target, plan):
            yield from self._at(place, f"move {held} to {place}")

    def _put_down(self) -> Iterator[str]:
        """Free the hand of what is not wanted, wherever it fits."""
        memory = self._memory
        if memory.held is not None:
            likely = usual_places().get(kind(memory.held), {})
            by_share = sorted(memory.places, key=lambda place: -likely.get(kind(place), 0))
            for place in sorted(by_share, key=memory.here, reverse=True):
                yield from self._at(place, f"move {memory.held} to {place}")

    def _at(self, place: str, command: str, *, inside: bool = True) -> Iterator[str]:
        """Do something at a place, unless it is known to be in vain."""
        if self._memory.promising(command):
            yield from self._reach(place, inside=inside)
            yield command

    def _reach(self, place: str, *, inside: bool = True) -> Iterator[str]:
        """Go to a place, and open it where its inside is wanted."""
        memory = self._memory
        if not memory.here(place):
            yield f"go to {place}"
        elif inside and place in memory.closed:
            yield f"open {place}"
        elif inside and place not in memory.inside:
            yield f"examine {place}"

    # ---- what is known

    def _of(self, place_kind: str, plan: Plan) -> list[str]:
        """Return places of a class: those that hold wanted things first, then the nearest, then those without doors."""
        memory = self._memory

        def order(place: str) -> tuple[int, bool, bool]:
            wanted = sum(self._settled(thing, place, plan) for thing in memory.inside.get(place, ()))
            return -wanted, not memory.here(place), place in memory.closed

        return sorted((place for place in memory.places if kind(place) == place_kind), key=order)

    def _settled(self, thing: str, place: str, plan: Plan) -> bool:
        """Return whether a thing is where a plan wants it, and as it wants it."""
        return (kind(thing), kind(place)) == (plan.thing, plan.target) and self._memory.treated(thing, plan.verb)

    def _refuted(self, command: str) -> Iterator[Plan]:
        """Yield the plans that ask for what the world refused just now: it would refuse all things of the class."""
        words = command.split()
        if self._memory.refused(command) and len(words) == _WORDS:
            verb, thing, place = words[0], words[1], words[-2]
            for plan in chain.from_iterable(self._wish.readings):
                if plan.thing == thing and (plan.target == place if verb == "move" else plan.verb == verb):
                    yield plan

    def _fulfilled(self) -> Iterator[Plan]:
        """Yield the plans that are done by now; where the game goes on all the same, none of them was meant."""
        memory = self._memory
        if self._wish.lamp:
            if memory.held is not None and memory.lit is not None:
                yield Plan(kind(memory.held), kind(memory.lit))
            return
        for place, inside in memory.inside.items():
            for verb in ("", *TOOLS):
                things = [kind(thing) for thing in inside if memory.treated(thing, verb)]
                for thing in set(things):
                    for number in range(1, things.count(thing) + 1):
                        yield Plan(thing, kind(place), verb, number)
