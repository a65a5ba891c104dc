"""What a task of ALFWorld asks for, read from its words: the game's own sentences, or those of people."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentgym_tok.envs.alfworld.game import TASK_PREFIX
from agentgym_tok.envs.alfworld.goal_words import PLACE_WORDS, THING_WORDS
from agentgym_tok.envs.alfworld.problem_writer import SENTENCES

__all__ = ["LAMPS", "TOOLS", "Plan", "Wish", "read_wish"]

LAMPS = ("desklamp", "floorlamp")
"""The classes of things that can be switched on."""

TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""The class of places that does it, by the verb."""


class Plan(NamedTuple):
    """Hold one reading of a task.

    Args:
        thing: Class of the thing.
        target: Class of the place that it belongs to, or of the lamp that it is to be seen under.
        verb: What is to be done to it first: `clean`, `heat`, `cool` or nothing.
        number: How many are wanted at one place.
    """

    thing: str
    target: str
    verb: str = ""
    number: int = 1


@dataclass(frozen=True, slots=True)
class Wish:
    """Hold what a task asks for.

    Args:
        readings: What may be meant, the likeliest first: groups of plans of which none is to be preferred before one of
            its things was found. The game's own sentences mean one thing.
        lamp: The targets are lamps.
    """

    readings: tuple[tuple[Plan, ...], ...]
    lamp: bool = False

    @property
    def ambiguous(self) -> bool:
        """Whether more than one thing may be meant."""
        return sum(map(len, self.readings)) > 1

    def told(self, plans: Sequence[Plan]) -> str:
        """Say the first of some plans, and others that differ in the thing, as the game's own tasks would.

        Args:
            plans: Plans of one reading.

        Returns:
            A sentence, a blank behind it; nothing where the task means one thing only, and says so itself.
        """
        if not self.ambiguous:
            return ""
        first = plans[0]
        alike = [plan for plan in plans if self.lamp or plan[1:] == first[1:]]
        things = dict.fromkeys(plan.thing for plan in alike)
        named = " or ".join(things) if len(things) <= _NAMED else "thing"
        targets = dict.fromkeys(plan.target for plan in alike)
        sentence = _LOOK if self.lamp else _PUT_TWO if first.number > 1 else _PUT[first.verb]
        return sentence.format(object=named, target=" or ".join(targets)) + ". "


_FORMS = [
    (task_type, re.compile(sentence.format(object=r"(?P<thing>\w+)", target=r"(?P<target>\w+)") + r"\.?"))
    for task_type, sentences in SENTENCES.items()
    for sentence in sentences
]
_LOOK, _PUT_TWO = SENTENCES["look_at_obj_in_light"][0], SENTENCES["pick_two_obj_and_place"][0]
_PUT = {
    "": SENTENCES["pick_and_place_simple"][1],
    **{verb: SENTENCES[f"pick_{verb}_then_place_in_recep"][0] for verb in TOOLS},
}
# More classes than that are as good as none.
_NAMED = 3
_WORD = re.compile(r"[a-z0-9']+")
_VERBS = {
    "clean": "clean cleaned cleaning wash washed washing rinse rinsed rinsing wet soak soaked damp water",
    "heat": "heat heated heating hot warm warmed warming cook cooked cooking microwaved toasted boiled baked",
    "cool": "cool cooled cooling cold chill chilled chilling refrigerated refrigerate frozen freeze",
}
_VERB_OF = {word: verb for verb, words in _VERBS.items() for word in words.split()}
_LIGHT = frozenset(["lamp", "light", "lamplight", "lit"])
_TWO = frozenset(["two", "2", "both", "pair", "couple"])
_TO = frozenset(["in", "into", "inside", "on", "onto", "at"])
# A place behind those is where something belongs; behind these it is one beside that, or where something was.
_BY = frozenset(["from", "by", "near", "beside", "behind", "above", "below", "under", "underneath", "off", "next"])
_SIDES = frozenset(["right", "left", "front", "side", "end", "corner"])
_LONGEST = 5


def read_wish(observation: str, usual: Mapping[str, Mapping[str, int]], places: Sequence[str]) -> Wish:
    """Read what the first text of an episode asks for.

    Args:
        observation: The text; its last line is the task.
        usual: How often a class of things stands at a class of places.
        places: The classes of places of this room.
    """
    task = observation.rpartition(TASK_PREFIX)[2].strip().lower()
    for task_type, form in _FORMS:
        found = form.fullmatch(task)
        if found and found["thing"] in usual and found["target"] in (*places, *LAMPS):
            verb = next((verb for verb in TOOLS if f"_{verb}_" in task_type), "")
            number = 2 if task_type.startswith("pick_two") else 1
            return Wish(((Plan(found["thing"], found["target"], verb, number),),), task_type.startswith("look"))
    return _read_words(_WORD.findall(task.replace("'s", "")), usual, places)


@dataclass(frozen=True, slots=True)
class _Mention:
    """Hold a phrase that names a thing or a place: where it stands, and the classes that it may mean."""

    first: int
    end: int
    kinds: Sequence[str]
    place: bool
    plural: bool


def _read_words(words: Sequence[str], usual: Mapping[str, Mapping[str, int]], places: Sequence[str]) -> Wish:
    """Read a task in a person's words."""
    here = {phrase: kept for phrase, kinds in PLACE_WORDS.items() if (kept := [k for k in kinds if k in places])}
    mentions = list(_mentions(words, here))
    named = [mention for mention in mentions if not mention.place]
    things = _all_kinds(named) or list(usual)
    if not _LIGHT.isdisjoint(words):
        return Wish((tuple(Plan(thing, lamp) for thing in things for lamp in LAMPS),), lamp=True)
    spots = [mention for mention in mentions if mention.place]
    goals = [spot for spot in reversed(spots) if not _beside(words, spot.first)]
    inside = {word for mention in mentions for word in range(mention.first, mention.end)}
    said = [_VERB_OF[word] for place, word in enumerate(words) if word in _VERB_OF and place not in inside]
    # Who passes by a sink, microwave or fridge on the way to another place does something there.
    passed = [verb for verb, tool in TOOLS.items() if any(tool in spot.kinds for spot in goals[1:])]
    several = not _TWO.isdisjoint(words) or (not said and bool(named) and named[0].plural)
    verbs = [""] if several else list(dict.fromkeys(said)) or passed or [""]
    tools = {TOOLS[verb] for verb in verbs if verb}
    targets = [target for target in _all_kinds(goals) if target not in tools]
    others = sorted(
        (place for place in places if place not in targets and place not in tools),
        key=lambda place: -max(usual.get(thing, {}).get(place, 0) for thing in things),
    )
    likely = targets or others
    number = 2 if several else 1
    twice = [Plan(thing, target, "", 2) for target in likely[:1] for thing in things] if verbs == [""] else []
    other_verbs = [verb for verb in ("cool", "heat", "clean") if verb not in verbs]
    return Wish(
        (
            tuple(Plan(thing, target, verb, number) for verb in verbs for target in likely for thing in things),
            (*twice, *(Plan(thing, target, verb) for verb in other_verbs for target in likely[:1] for thing in things)),
            tuple(Plan(thing, target, verb, number) for verb in verbs for target in others for thing in things),
        )
    )


def _all_kinds(mentions: Sequence[_Mention]) -> list[str]:
    return list(dict.fromkeys(kind for mention in mentions for kind in mention.kinds))


def _mentions(words: Sequence[str], places: Mapping[str, Sequence[str]]) -> Iterator[_Mention]:
    """Yield what is named, by the longest phrase from each word on."""
    single = [word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith("ss") else word for word in words]
    first = 0
    while first < len(words):
        for end in range(min(first + _LONGEST, len(words)), first, -1):
            phrase = " ".join(single[first:end])
            kinds = places.get(phrase) or THING_WORDS.get(phrase)
            if kinds:
                head = words.index("of", first, end) - 1 if "of" in words[first:end] else end - 1
                yield _Mention(first, end, kinds, phrase in places, single[head] != words[head] != "keys")
                break
        else:
            end = first + 1
        first = end


def _beside(words: Sequence[str], at: int) -> bool:
    """Return whether the place that is named there only tells where another one is, or where something was."""
    for place in range(at - 1, max(at - 5, -1), -1):
        if words[place] in _BY or (words[place] == "of" and place and words[place - 1] in _SIDES):
            return True
        if words[place] in _TO:
            return False
    return False
