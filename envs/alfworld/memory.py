"""What a player of ALFWorld can know: what the texts said so far."""

import re

__all__ = ["Memory", "kind"]

_NAME = r"[a-z]+ \d+"
_ROOM = re.compile(r"you see (.*?)\.\s*\n")
_FACING = re.compile(r"You are facing the (.*?)\. Next to it")
_ARRIVED = re.compile(rf"\AYou arrive at ({_NAME})\.")
_VIEW = re.compile(rf"(?:The ({_NAME}) is open\. In it|On the ({_NAME})), you see (.*?)\.")
_CLOSED = re.compile(rf"(?:The ({_NAME}) is closed|You close the ({_NAME}))\.")
_TOOK = re.compile(rf"\AYou pick up the ({_NAME}) from the ({_NAME})\.")
_MOVED = re.compile(rf"\AYou move the ({_NAME}) to the ({_NAME})\.")
_TREATED = re.compile(rf"\AYou (clean|heat|cool) the ({_NAME}) using the ({_NAME})\.")
_LIT = re.compile(rf"\AYou turn on the ({_NAME})\.")
_NAMES = re.compile(_NAME)
_NUMBER = re.compile(r" \d+")


def kind(name: str) -> str:
    """Return the class of a thing or place: `"drawer"` for `drawer 2`."""
    return name.rpartition(" ")[0]


def _rule(command: str) -> str:
    """Return a command without numbers where nothing depends on them: a class fits into a class, or does not."""
    return _NUMBER.sub("", command) if command.startswith(("move ", "clean ", "heat ", "cool ")) else command


class Memory:
    """Hold what the texts of one episode said.

    Attributes:
        places: All receptacles that were named, in the order of the first text.
        at: The place that the player went to last; None before the first walk.
        held: What is in the hand.
        inside: What was seen in each place, as of now; a place that was not seen yet is missing.
        closed: Places that were seen closed and not opened since.
        lit: The lamp that was switched on by the last command; None after any other.
    """

    def __init__(self, observation: str) -> None:
        room = _FACING.search(observation) or _ROOM.search(observation)
        self.places: list[str] = _NAMES.findall(room[1]) if room else []
        self.at: str | None = None
        self.held: str | None = None
        self.inside: dict[str, list[str]] = {}
        self.closed: set[str] = set()
        self.lit: str | None = None
        self._treated: dict[str, set[str]] = {}
        self._beside: set[frozenset[str]] = set()
        self._refused: set[str] = set()
        self._vain: set[tuple[str, str | None, str | None]] = set()

    def read(self, command: str, observation: str) -> None:
        """Learn from what was done and what was answered.

        Args:
            command: What was done; it tells only what failed.
            observation: The answer.
        """
        lit = _LIT.search(observation)
        self.lit = lit[1] if lit else None
        if observation == "Nothing happens.":
            self._failed(command)
        elif took := _TOOK.search(observation):
            self.held = took[1]
            # Some things are listed in two places, and taken from one. Where nobody looked, more may lie.
            if took[1] in self.inside.get(took[2], ()):
                self.inside[took[2]].remove(took[1])
        elif moved := _MOVED.search(observation):
            self.held = None
            if moved[2] in self.inside:
                self.inside[moved[2]].append(moved[1])
        elif done := _TREATED.search(observation):
            states = self._treated.setdefault(done[2], set())
            states -= {"heat", "cool"} if done[1] != "clean" else set()
            states.add(done[1])
        else:
            self._look(observation)

    def treated(self, thing: str, verb: str) -> bool:
        """Return whether a thing is as it was to be made: cleaned, heated or cooled; no verb asks for nothing."""
        return not verb or verb in self._treated.get(thing, ())

    def here(self, place: str) -> bool:
        """Return whether the player stands at a place; several may share a location."""
        return place == self.at or (self.at is not None and frozenset((place, self.at)) in self._beside)

    def promising(self, command: str) -> bool:
        """Return whether a command has not failed before, for good or in a situation like this one."""
        return not self.refused(command) and (command, self.at, self.held) not in self._vain

    def refused(self, command: str) -> bool:
        """Return whether the world refused a command, or its like, where nothing but that can have been wrong."""
        return _rule(command) in self._refused

    def _failed(self, command: str) -> None:
        names = _NAMES.findall(command)
        place = names[-1] if names else ""
        if command == f"go to {place}" and self.at is not None:
            # Nobody can go to where he is: this place shares the location.
            self._beside.add(frozenset((place, self.at)))
        elif self.here(place) and (place not in self.closed or " with " in command):
            self._refused.add(_rule(command))
        else:
            self._vain.add((command, self.at, self.held))

    def _look(self, observation: str) -> None:
        if arrived := _ARRIVED.search(observation):
            self.at = arrived[1]
        for first, second in _CLOSED.findall(observation):
            self.closed.add(first or second)
        for opened, surface, names in _VIEW.findall(observation):
            self.closed.discard(opened)
            self.inside[opened or surface] = _NAMES.findall(names)
