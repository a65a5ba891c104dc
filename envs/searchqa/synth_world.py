"""The generated world behind `SearchQA-synth`: lakes, rivers, towns, people, books, ships, guilds and feasts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from agentgym_tok.envs.draws import Draws
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.synth_names import Names

__all__ = ["RELATIONS", "Population", "Relation", "Thing", "population", "source_of", "synth_passages"]

# How many times the counts below a split has; splits share the corpus and no thing.
_SCALE = {"train": 6, "valid": 2, "test": 2}
_COUNTS = {"lake": 4, "river": 10, "town": 40, "person": 100, "book": 60, "ship": 30, "guild": 25, "feast": 12}


class Relation(NamedTuple):
    """Hold what the passage of a thing says about it.

    Args:
        of: The kind of thing.
        to: The kind of thing that it leads to, or the range of the number that it tells.
        says: The sentence of the passage, without its subject.
        phrase: What it leads to, named by the thing itself; empty for numbers.
        asks: The question.
    """

    of: str
    to: str | tuple[int, int]
    says: str
    phrase: str
    asks: str


RELATIONS: Mapping[str, Relation] = {
    "depth": Relation("lake", (5, 340), "is {} fathoms deep", "", "How many fathoms deep is {}?"),
    "mouth": Relation("river", "lake", "flows into {}", "the lake at the mouth of {}", "Into which lake does {} flow?"),
    "length": Relation("river", (20, 899), "is {} miles long", "", "How many miles long is {}?"),
    "river": Relation("town", "river", "lies on the {}", "the river that runs past {}", "Which river runs past {}?"),
    "charter": Relation("town", (1100, 1649), "got its charter in {}", "", "In which year did {} get its charter?"),
    "birthplace": Relation(
        "person", "town", "was born in {}", "the birthplace of {}", "Which town is the birthplace of {}?"
    ),
    "teacher": Relation("person", "person", "learned from {}", "the teacher of {}", "Who was the teacher of {}?"),
    "born": Relation(
        "person", (1700, 1869), "came into the world in the year {}", "", "In which year did {} come into the world?"
    ),
    "author": Relation("book", "person", "was written by {}", "the author of the book {}", "Who wrote the book {}?"),
    "printed": Relation(
        "book",
        "town",
        "was first printed in {}",
        "the town of the first printing of the book {}",
        "In which town was the book {} first printed?",
    ),
    "published": Relation("book", (1750, 1899), "came out in {}", "", "In which year did the book {} come out?"),
    "captain": Relation(
        "ship", "person", "sailed under captain {}", "the captain of the ship {}", "Who was the captain of the ship {}?"
    ),
    "yard": Relation(
        "ship",
        "town",
        "was built in the yards of {}",
        "the town whose yards built the ship {}",
        "In which town's yards was the ship {} built?",
    ),
    "founder": Relation("guild", "person", "was founded by {}", "the founder of the {}", "Who founded the {}?"),
    "seat": Relation(
        "guild", "town", "has its seat in {}", "the seat of the {}", "In which town does the {} have its seat?"
    ),
    "start": Relation(
        "feast", "town", "begins in {}", "the town where the {} begins", "In which town does the {} begin?"
    ),
    "patron": Relation("feast", "person", "honours {}", "the person honoured by the {}", "Whom does the {} honour?"),
}
"""What is told of each kind of thing, by the name of the fact."""

_OPENINGS = {
    "lake": "{} is a lake in the north.",
    "river": "{} is a river that people have fished for ages.",
    "town": "{} is a market town with a square and a mill.",
    "person": "{} was known in the whole country.",
    "book": "{} is a novel in three parts.",
    "ship": "{} is a ship with two masts.",
    "guild": "The {} is an old company of craftsmen.",
    "feast": "The {} is held every autumn.",
}


@dataclass(slots=True, eq=False)
class Thing:
    """Hold one thing of the world.

    Args:
        kind: What it is.
        name: Unique in the world; the title of its passage.
        facts: What its relations lead to, by their names: a thing, or a number.
    """

    kind: str
    name: str
    facts: dict[str, "Thing | int"] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """How its passage goes on to call it."""
        return self.name.split()[0] if self.kind == "person" else f"The {self.kind}"


Population: TypeAlias = Mapping[str, list[Thing]]
"""The things of a split, by kind."""


def source_of(world: int) -> str:
    """Return the name that scores of a generated world carry."""
    return f"SearchQA-synth-{world}" if world else "SearchQA-synth"


def population(split: str, world: int = 0) -> Population:
    """Return the things that the questions of a split are about."""
    return _world(world)[split]


@lru_cache(maxsize=2)
def synth_passages(world: int = 0) -> tuple[Passage, ...]:
    """Return the corpus, which all splits share: one passage about each thing, in an order that tells nothing.

    Args:
        world: Number of the world; no other one has a name of world 0, which scores are about.
    """
    things = [thing for split in _world(world).values() for kind in split.values() for thing in kind]
    draws = Draws(source_of(world), "order")
    keys = [draws.between(0, 10**9) for _ in things]
    order = sorted(range(len(things)), key=keys.__getitem__)
    return tuple(_passage(things[place], number) for number, place in enumerate(order))


def _passage(thing: Thing, number: int) -> Passage:
    sentences = [_OPENINGS[thing.kind].format(thing.name)]
    for name, found in thing.facts.items():
        said = RELATIONS[name].says.format(found.name if isinstance(found, Thing) else found)
        sentences.append(f"{thing.short} {said}.")
    return Passage(f"synth-{number:04d}", thing.name, " ".join(sentences))


@lru_cache(maxsize=3)
def _world(number: int) -> Mapping[str, Population]:
    source = source_of(number)
    taken = (thing.name for split in _world(0).values() for kind in split.values() for thing in kind) if number else ()
    names = Names(Draws(source, "names"), taken)
    return {split: _populate(source, split, scale, names) for split, scale in _SCALE.items()}


def _populate(source: str, split: str, scale: int, names: Names) -> Population:
    people = {kind: [Thing(kind, names.draw(kind)) for _ in range(scale * count)] for kind, count in _COUNTS.items()}
    draws = Draws(source, "facts", split)
    for things in people.values():
        for place, thing in enumerate(things):
            thing.facts.update(_facts(thing.kind, place, people, draws))
    return people


def _facts(kind: str, place: int, people: Population, draws: Draws) -> Iterator[tuple[str, Thing | int]]:
    for name, relation in RELATIONS.items():
        if relation.of != kind:
            continue
        if not isinstance(relation.to, str):
            yield name, draws.between(*relation.to)
        elif relation.to != kind:
            yield name, draws.pick(people[relation.to])
        elif place:  # a teacher stands before the pupils, so that no chain turns in a circle
            yield name, draws.pick(people[kind][:place])
