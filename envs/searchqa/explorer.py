"""A reader who finds out: takes the question apart, searches for what is missing, reads, and answers."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from agentgym_tok.envs.searchqa.commands import command, read_command
from agentgym_tok.envs.searchqa.synth import COMPARISONS
from agentgym_tok.envs.searchqa.synth_world import RELATIONS

__all__ = ["SearchQAExplorer"]


class _Fact(NamedTuple):
    """Hold what is to be found out: what the passage of a thing says.

    Args:
        name: Which fact, one of `RELATIONS`.
        of: The thing: its name, or the fact of another thing that leads to it.
    """

    name: str
    of: "_Thing"


_Thing: TypeAlias = str | _Fact


class _Puzzle(NamedTuple):
    """Hold a question, taken apart.

    Args:
        facts: What must be found out: one fact, or the two numbers of a comparison; none where the form is another one.
        larger: Of two numbers the larger one wins.
    """

    facts: tuple[_Fact, ...]
    larger: bool = False


def _form(sentence: str, end: str = r"\Z") -> re.Pattern[str]:
    """Return what reads the gaps of a sentence."""
    return re.compile(r"\A" + re.escape(sentence).replace(r"\{\}", "(.+)") + end)


_ASKS = {name: _form(relation.asks) for name, relation in RELATIONS.items()}
_PHRASES = {name: _form(relation.phrase) for name, relation in RELATIONS.items() if relation.phrase}
# No name of the generated world has a dot.
_SAYS = {
    name: re.compile(r"[^.]*?\b" + re.escape(relation.says).replace(r"\{\}", r"([^.]+)") + r"\.")
    for name, relation in RELATIONS.items()
}
_COMPARES = {name: (_form(asks), larger) for name, (asks, larger) in COMPARISONS.items()}
_PASSAGE = re.compile(r'^Doc \d+(?:\(Title: "?(.*?)"?\) |: "?(.*?)"?\n)(.*)$', re.MULTILINE)


class SearchQAExplorer:
    """Answer by what the passages say; see `Explorer`.

    It knows the sentences that questions and passages of the generated world are made of, and no name in it. Any other
    question is searched as it stands, and answered by the title of the first passage.

    A turn begins with what was learned since the one before. With a blank before it every name has the ids that it has
    in the passages, so that who imitates it copies.
    """

    def __init__(self) -> None:
        self.reset("")

    def reset(self, observation: str) -> None:
        """Begin an episode; see `Explorer.reset`."""
        self._question = observation.strip()
        self._puzzle = _take_apart(self._question)
        self._passages: dict[str, str] = {}
        self._searched: set[str] = set()
        self.thought = ""

    def follow(self, command: str, observation: str) -> None:
        """Learn what was done and answered; see `Explorer.follow`."""
        asked, known = read_command(command), self._known()
        if asked is not None and asked.verb == "search":
            self._searched.add(asked.text)
            for title, other_title, text in _PASSAGE.findall(observation):
                self._passages.setdefault(title or other_title, text)
        self.thought = self._think({fact: said for fact, said in self._known().items() if fact not in known})

    def act(self) -> str:
        """Return the next search, or the answer; see `Explorer.act`."""
        ends = [self._find(fact) for fact in self._puzzle.facts]
        missing = [end for end in ends if isinstance(end, _Fact)]
        if not missing and ends:
            return command("answer", self._conclude([end for end in ends if isinstance(end, str)])[1])
        query = next((query for query in self._queries(missing) if query not in self._searched), None)
        if query is not None:
            return command("search", query)
        return command("answer", next(iter(self._passages), "unknown"))

    def _find(self, thing: _Thing) -> _Thing:
        """Return the name of a thing or the value of a fact, or the first fact on the way that nobody told yet."""
        if isinstance(thing, str):
            return thing
        of = self._find(thing.of)
        if not isinstance(of, str):
            return of
        said = self._told(thing.name, of)
        return said[1] if said else _Fact(thing.name, of)

    def _known(self) -> dict[_Fact, str]:
        """Return the facts on the ways that the question names, as far as they were told, and the sentences that do."""
        known: dict[_Fact, str] = {}
        for fact in self._puzzle.facts:
            way: list[_Fact] = [fact]
            while isinstance(of := way[-1].of, _Fact):
                way.append(of)
            for step in reversed(way):
                of = self._find(step.of)
                if isinstance(of, str) and (said := self._told(step.name, of)):
                    known[_Fact(step.name, of)] = said[0].strip()
        return known

    def _told(self, fact: str, of: str) -> re.Match[str] | None:
        """Return where the passage of a thing tells a fact."""
        return _SAYS[fact].search(self._passages.get(of, ""))

    def _think(self, learned: Mapping[_Fact, str]) -> str:
        """Say what was learned of which thing, and what follows where it was a comparison."""
        said = [f" {fact.of}: {sentence}" for fact, sentence in learned.items()]
        ends = [self._find(fact) for fact in self._puzzle.facts]
        if len(ends) > 1 and all(isinstance(end, str) for end in ends):
            names = [self._find(fact.of) for fact in self._puzzle.facts]
            said += [f" {end}: {name}." for end, name in zip(ends, names, strict=True)]
            number, name = self._conclude([str(end) for end in ends])
            said.append(f" {'Larger' if self._puzzle.larger else 'Smaller'}: {number}: {name}.")
        return "".join(said)

    def _queries(self, missing: Sequence[_Fact]) -> list[str]:
        """Return what may be searched for, the best first: one fact at a time, then the things alone."""
        if not missing:
            return [self._question]
        exact = [" ".join([str(fact.of), *RELATIONS[fact.name].says.replace("{}", "").split()]) for fact in missing]
        return [*exact, *(str(fact.of) for fact in missing), self._question]

    def _conclude(self, ends: Sequence[str]) -> tuple[str, str]:
        """Return the deciding value and the answer."""
        if len(ends) == 1:
            return ends[0], ends[0]
        numbers = [int(end) if end.isdigit() else 0 for end in ends]
        best = numbers.index((max if self._puzzle.larger else min)(numbers))
        return ends[best], str(self._find(self._puzzle.facts[best].of))


def _take_apart(question: str) -> _Puzzle:
    for name, (form, larger) in _COMPARES.items():
        if found := form.match(question):
            return _Puzzle(tuple(_Fact(name, _thing(phrase)) for phrase in found.groups()), larger)
    for name, form in _ASKS.items():
        if found := form.match(question):
            return _Puzzle((_Fact(name, _thing(found[1])),))
    return _Puzzle(())


def _thing(phrase: str) -> _Thing:
    """Read what a thing is called: by its name, or by a way to it."""
    for name, form in _PHRASES.items():
        if found := form.match(phrase):
            return _Fact(name, _thing(found[1]))
    return phrase.strip('"')
