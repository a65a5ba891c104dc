"""What a customer reads: the instruction and the pages of the shop, from their texts alone."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Demand", "Offer", "Part", "Seen", "read_demand", "read_page", "words_of"]

_Kind: TypeAlias = Literal["start", "results", "item", "sub", "other"]
_What: TypeAlias = Literal["phrase", "option", "price"]


class Offer(NamedTuple):
    """Hold one line of the results."""

    asin: str
    title: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Seen:
    """Hold what a page says.

    Args:
        kind: The kind of page; after the purchase, and where a text was cut, `other`.
        instruction: The task.
        pieces: What stands behind the task, piece by piece.
    """

    kind: _Kind
    instruction: str = ""
    pieces: tuple[str, ...] = ()

    @property
    def offers(self) -> list[Offer]:
        """Return the products on a page of results."""
        lines = self.pieces if self.kind == "results" else ()
        return [
            Offer(asin, title, *_prices(price))
            for asin, title, price in zip(lines, lines[1:], lines[2:], strict=False)
            if _ASIN.fullmatch(asin) and price.startswith("$")
        ]

    @property
    def more(self) -> bool:
        """Return whether a page of results is full, so that another may follow."""
        return self.kind == "results" and len(self.offers) >= _FULL

    def options(self, title: str) -> list[str]:
        """Return names and values of the options on the page of a product, in order."""
        if self.kind != "item" or title not in self.pieces:
            return []
        return list(self.pieces[len(_TOP) : self.pieces.index(title)])


class Part(NamedTuple):
    """Hold one thing that an instruction asks for, as it stands there.

    Args:
        what: What the product should be or have, an option to choose, or the price.
        start: Where its text begins in the instruction.
        end: Where its text ends there.
        words: Its text as `words_of` gives it.
    """

    what: _What
    start: int
    end: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """Hold what an instruction asks for.

    Args:
        text: The instruction.
        words: All words of it but the price, as `words_of` gives them.
        parts: What it asks for, in its order; options where it lists them by name.
        query: What to search: the instruction without the price, in its own words.
        listed: The instruction is one of a template, which lists the options that it wants, if it wants any.
        head: The last word of the name of the goods, where the form of the instruction tells it.
        limit: The most that it may cost, in dollars.
    """

    text: str
    words: tuple[str, ...]
    parts: tuple[Part, ...]
    query: str
    listed: bool
    head: str
    limit: float

    @property
    def phrases(self) -> list[tuple[str, ...]]:
        """Return what the product should be and have, each as words."""
        return [part.words for part in self.parts if part.what == "phrase"]

    @property
    def options(self) -> list[str]:
        """Return the values to choose, where the instruction lists them by name."""
        return [self.text[part.start : part.end] for part in self.parts if part.what == "option"]


_TOP = ("Back to Search", "< Prev")
_FULL = 10
_ASIN = re.compile(r"[A-Z0-9]{10}")
_BUTTON = re.compile(r"\[(?:clicked )?button\] (.*) \[(?:clicked )?button_\]")
_WORD = re.compile(r"[a-z0-9](?:[a-z0-9./&-]*[a-z0-9])?")
_WORD_OR_STOP = re.compile(rf"(?P<word>{_WORD.pattern})|[,:;?!]|\.(?=\s|\Z)", re.IGNORECASE | re.ASCII)
# What a command cannot hold.
_MARKS = re.compile(r"[\[\]<>]")
_MONEY = re.compile(r"\d[\d,]*\.?\d*")
_LIMIT = re.compile(
    r",? (?:and )?(?P<most>(?:price )?(?:lower|less|cheaper) than \$?(?P<number>\d[\d,]*\.?\d*)(?: dollars)?)"
)
_LISTED = re.compile(r" with (?=[^:,]+: )")
_NEXT_LISTED = re.compile(r", and (?=[^:,]+: )")
_FILLERS = """
a an the and or of to for in on at by with that which is are be am i im m s re ve it its they them this these my me we
our you your some any as so if from has have had having get got give find show buy want wants need needs needed looking
look like would could can do does please order make makes made sure says say must should ideally prefer also again out
after nothing fancy friend another one there where who will comes come able new size color scent style flavor name box
"""
# Words that say nothing of the goods; the names of options among them stand before a value.
_EMPTY = frozenset(_FILLERS.split())


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, in the singular as far as an ending tells."""
    words = _WORD.findall(text.lower().replace("'s", ""))
    return tuple(word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] != "s" else word for word in words)


def read_page(text: str) -> Seen:
    """Read a page in either mode of observation."""
    if " [SEP] " in text:
        pieces = [piece.strip() for piece in text.split(" [SEP] ")]
    else:
        lines = (line.strip() for line in text.splitlines())
        pieces = [found[1] if (found := _BUTTON.fullmatch(line)) else line for line in lines if line]
    if "Instruction:" not in pieces[:-1]:
        return Seen("other")
    at = pieces.index("Instruction:")
    rest = tuple(pieces[at + 2 :])
    kind: _Kind = "other"
    if rest == ("Search",):
        kind = "start"
    elif len(rest) > 1 and rest[1].startswith("Page "):
        kind = "results"
    elif rest[: len(_TOP)] == _TOP:
        kind = "item" if "Buy Now" in rest else "sub"
    return Seen(kind, pieces[at + 1], rest)


def read_demand(instruction: str) -> Demand:
    """Read an instruction: one from a template, or a person's words."""
    found = _LIMIT.search(instruction)
    body = instruction[: found.start()] if found else instruction
    opening = _LISTED.search(body)
    goods = body[: opening.start()] if opening else body
    parts = [*_phrases(goods)]
    if opening:
        parts += _options(body, opening.end())
    if found:
        parts.append(Part("price", *found.span("most"), words_of(found["most"])))
    head, template = "", opening is not None or body[:1].isupper()
    phrases = [part.words for part in parts if part.what == "phrase"]
    if phrases and template:
        # The templates of generated goals put the goods first after "Buy", and else last.
        head = (phrases[0] if goods.startswith("Buy ") else phrases[-1])[-1]
    limit = float(found["number"].replace(",", "")) if found else float("inf")
    query = " ".join(_MARKS.sub(" ", body).split())
    return Demand(instruction, words_of(body), tuple(parts), query, template, head, limit)


def _phrases(text: str) -> Iterator[Part]:
    """Yield runs of words that say something of the goods."""
    run: list[re.Match[str]] = []
    for found in (*_WORD_OR_STOP.finditer(text), None):
        if found is not None and found["word"] and found["word"].lower() not in _EMPTY:
            run.append(found)
        elif run:
            start, end = run[0].start(), run[-1].end()
            # Of a word that is nothing but 's no word is left.
            if words := words_of(text[start:end]):
                yield Part("phrase", start, end, words)
            run = []


def _options(text: str, start: int) -> Iterator[Part]:
    """Yield the values of a list of options, such as `color: gold, and size: 60 inch`."""
    ends = [*_NEXT_LISTED.finditer(text, start)]
    for begin, end in zip(
        (start, *(one.end() for one in ends)), (*(one.start() for one in ends), len(text)), strict=True
    ):
        value = text.index(": ", begin) + 2
        if value < end:
            yield Part("option", value, end, words_of(text[value:end]))


def _prices(text: str) -> Sequence[float]:
    found = [float(price.replace(",", "")) for price in _MONEY.findall(text)]
    return (found[0], found[-1]) if found else (0.0, 0.0)
