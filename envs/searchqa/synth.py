"""Questions about the generated world: one to four hops, and comparisons."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from agentgym_tok.envs.draws import Draws
from agentgym_tok.envs.searchqa.questions import Question
from agentgym_tok.envs.searchqa.synth_world import RELATIONS, Population, Thing, population, source_of, synth_passages
from agentgym_tok.errors import unknown_name

__all__ = ["COMPARISONS", "KINDS", "SPLITS", "source_of", "synth_passages", "synth_questions"]

SPLITS: Mapping[str, int] = MappingProxyType({"train": 2000, "valid": 200, "test": 200})
"""How many questions each split has; no question of one split is about a thing of another."""
KINDS = ("1hop", "2hop", "3hop", "4hop", "compare")
"""The kinds of question."""

# Ten questions in a row, so that any beginning of a split is a fair mix.
_MIX = ("1hop", "2hop", "compare", "3hop", "2hop", "4hop", "1hop", "compare", "3hop", "2hop")
COMPARISONS: Mapping[str, tuple[str, bool]] = {
    "born": ("Who came into the world earlier, {} or {}?", False),
    "charter": ("Which town got its charter earlier, {} or {}?", False),
    "published": ("Which book came out earlier, {} or {}?", False),
    "length": ("Which river is longer, {} or {}?", True),
    "depth": ("Which lake is deeper, {} or {}?", True),
}
"""What is compared, by the name of the fact: the question, and whether the larger number wins."""


@lru_cache(maxsize=2 * len(SPLITS))
def synth_questions(split: str, world: int = 0) -> tuple[Question, ...]:
    """Return the questions of a split.

    Each holds the titles of its gold passages, and the queries that find them, in their order.

    Args:
        split: Its name.
        world: Number of the world.

    Raises:
        UnknownName: There is no such split.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS, where=source_of(world))
    things, asked = population(split, world), set[str]()
    return tuple(_question(source_of(world), split, things, index, asked) for index in range(SPLITS[split]))


class _Way(NamedTuple):
    """Hold a thing together with a way to it.

    Args:
        phrase: The thing, named by where the way begins.
        titles: The passages that lead to it.
        queries: What finds them.
        end: The thing.
    """

    phrase: str
    titles: tuple[str, ...]
    queries: tuple[str, ...]
    end: Thing

    def read(self, fact: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return titles and queries of the way and of a fact at its end."""
        query = " ".join([self.end.name, *RELATIONS[fact].says.replace("{}", "").split()])
        return (*self.titles, self.end.name), (*self.queries, query)

    def follow(self, fact: str) -> "_Way | None":
        """Go on to the thing that a fact leads to; None where it leads to none."""
        found = self.end.facts.get(fact)
        if not isinstance(found, Thing):
            return None
        return _Way(RELATIONS[fact].phrase.format(self.phrase), *self.read(fact), found)


def _question(source: str, split: str, things: Population, index: int, asked: set[str]) -> Question:
    kind = _MIX[index % len(_MIX)]
    draws = Draws(source, "question", split, index)
    name = f"{source}/{split}/{kind}/{index:04d}"
    while True:
        # A way may end too early, two numbers may be equal, or the same may have been asked.
        if kind == "compare":
            made = _comparison(name, source, things, draws)
        else:
            made = _hops(name, source, things, int(kind[0]), draws)
        if made is not None and made.text not in asked:
            asked.add(made.text)
            return made


def _hops(name: str, source: str, things: Population, hops: int, draws: Draws) -> Question | None:
    kinds = sorted({relation.of for relation in RELATIONS.values()})
    way: _Way | None = _begin(things, draws.pick(kinds), draws)
    for _ in range(hops - 1):
        onward = [] if way is None else [fact for fact, found in way.end.facts.items() if isinstance(found, Thing)]
        way = way.follow(draws.pick(onward)) if way is not None and onward else None
    if way is None or not way.end.facts:
        return None
    fact = draws.pick(tuple(way.end.facts))
    found = way.end.facts[fact]
    answer = found.name if isinstance(found, Thing) else str(found)
    return Question(name, RELATIONS[fact].asks.format(way.phrase), (answer,), source, *way.read(fact))


def _comparison(name: str, source: str, things: Population, draws: Draws) -> Question | None:
    """Compare two things by a number; both are named, or both are a hop away."""
    fact = draws.pick(tuple(COMPARISONS))
    asks, larger = COMPARISONS[fact]
    kind = RELATIONS[fact].of
    before = [before for before, relation in RELATIONS.items() if relation.to == kind]
    hop = draws.pick(before) if before and draws.chance(0.5) else None
    ways: list[tuple[int, _Way]] = []
    for _ in range(2):
        begun = _begin(things, kind if hop is None else RELATIONS[hop].of, draws)
        way = begun if hop is None else begun.follow(hop)
        number = None if way is None else way.end.facts[fact]
        if way is None or not isinstance(number, int):
            return None
        ways.append((number if larger else -number, way))
    (first, one), (second, other) = ways
    if first == second:
        return None
    best = one if first > second else other
    (titles, queries), (more_titles, more_queries) = one.read(fact), other.read(fact)
    text = asks.format(one.phrase, other.phrase)
    return Question(name, text, (best.end.name,), source, (*titles, *more_titles), (*queries, *more_queries))


def _begin(things: Population, kind: str, draws: Draws) -> _Way:
    thing = draws.pick(things[kind])
    return _Way(f'"{thing.name}"' if kind in {"book", "ship"} else thing.name, (), (), thing)
