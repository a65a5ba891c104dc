"""A customer who finds out: searches, opens what looks right, compares what the pages say, and buys."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentgym_tok.envs.webshop.reading import Offer, Part, Seen, read_demand, read_page, words_of

__all__ = ["WebShopExplorer"]

# Names of options, which look like values in the texts.
_NAMES = frozenset(
    ("color", "size", "style", "scent", "flavor", "flavor name", "finish", "length", "width", "height", "material")
)
# What of a product is not known yet is as it should be this often.
_LIKELY = 0.85
# How many options an instruction may name that does not list them.
_UNSAID = 2
# Commands that a look at a product takes, there and back; and to read on there, come back, and buy another one.
_LOOK, _READ = 2, 6


@dataclass(slots=True)
class _Candidate:
    """Hold what is known of a product.

    Args:
        offer: Its line in the results.
        page: The page of results that shows it.
        rank: Its place there, from 0.
        text: What was read about it on its other pages.
        options: Names and values of its options; None before it was opened.
        read: Which of its other pages were read.
    """

    offer: Offer
    page: int
    rank: int
    text: str = ""
    options: list[str] | None = None
    read: set[str] = field(default_factory=set)


class WebShopExplorer:
    """Buy what the instruction asks for, by what the pages say; see `Explorer`.

    It searches for the instruction itself, since a shop finds by values of options, too. It takes offers in the order
    of the page, and thinks aloud in the words of the texts: the results from the one that it opened last to the one
    that it opens next, then the instruction, and of each part of it whether the product has it. So who imitates it
    copies ids.

    Args:
        patience: How many commands it allows itself; the last ones go to the best product that it has seen.
    """

    def __init__(self, patience: int = 15) -> None:
        self._patience = patience
        self.reset("")

    def reset(self, observation: str) -> None:
        """Begin an episode; see `Explorer.reset`."""
        self._seen = read_page(observation)
        self._demand = read_demand(self._seen.instruction)
        self._asked = [option.lower() for option in self._demand.options]
        self._known: dict[str, _Candidate] = {}
        self._at: _Candidate | None = None
        self._chosen: set[str] = set()
        self._decided: _Candidate | None = None
        self._opened: _Candidate | None = None
        self.thought = ""
        self._page, self._steps, self._searches = 1, 0, 0

    def follow(self, command: str, observation: str) -> None:
        """Learn what was done and answered; see `Explorer.follow`."""
        self._steps += 1
        verb, _, rest = command.partition("[")
        name = rest.removesuffix("]").lower()
        seen, before = read_page(observation), self._seen
        self._seen = seen
        if verb == "search":
            self._searches += 1
            self._known = {}
        if seen.kind == "results":
            self._at = None
            self._page = _page_number(seen)
            for rank, offer in enumerate(seen.offers):
                self._known.setdefault(offer.asin.lower(), _Candidate(offer, self._page, rank))
        elif seen.kind == "item":
            if before.kind == "results":
                self._at, self._chosen = self._known.get(name), set()
                self._opened = self._at
            elif name in map(str.lower, seen.pieces):
                self._chosen.add(name)
            if self._at is not None:
                self._at.options = [option.lower() for option in seen.options(self._at.offer.title)]
                self._ask(self._at.options)
        elif seen.kind == "sub" and self._at is not None and name not in self._at.read:
            self._at.read.add(name)
            self._at.text += " . ".join(("", *seen.pieces))

    def act(self) -> str | None:
        """Return a step towards the best product; see `Explorer.act`."""
        kind = self._seen.kind
        self.thought = ""
        if kind == "start":
            words = self._demand.query.split()
            # What finds nothing is said shorter.
            return f"search[{' '.join(words[self._searches :] or words[-1:]) or 'anything'}]"
        if kind == "other":
            return None
        aim = self._aim()
        if kind == "results":
            return self._leave_results(aim)
        self.thought = self._think()
        if aim is None or aim is not self._at or kind == "sub":
            return "click[< Prev]"
        if self._decided is not aim and self._lacking(aim) and self._may_read(aim):
            return "click[Features]"
        option = next((value for value in self._wanted(aim) if value not in self._chosen), None)
        return f"click[{option or 'Buy Now'}]"

    # ---- what to buy

    def _aim(self) -> _Candidate | None:
        """Return the product to look at or to buy; None to see more of them."""
        if self._decided is not None:
            return self._decided
        here = self._at
        best = max(self._known.values(), key=self._worth, default=None)
        if here is not None and self._open(here):
            return here
        if best is not None and self._spent(best):
            self._decided = best
            return best
        left = next((candidate for candidate in self._known.values() if candidate.options is None), None)
        if left is not None:
            return left
        if self._seen.kind == "results" and not self._seen.more:
            self._decided = best
        return self._decided

    def _open(self, candidate: _Candidate) -> bool:
        """Return whether a look at more of this product can still make it the one."""
        if candidate.options is None or self._short(candidate) or not self._fits(candidate):
            return False
        return not self._lacking(candidate) or self._may_read(candidate)

    def _spent(self, best: _Candidate) -> bool:
        """Return whether one look at another product would leave too few commands to come back and buy the best."""
        back = (self._seen.kind != "results") + (self._seen.kind == "sub")
        buy = 1 + abs(best.page - self._page) + self._choices() + 1
        return self._patience - self._steps < back + _LOOK + buy

    def _may_read(self, candidate: _Candidate) -> bool:
        """Return whether there are commands enough to read on, and to go and buy even another product."""
        return "features" not in candidate.read and self._patience - self._steps >= _READ + self._choices()

    def _choices(self) -> int:
        """Return how many clicks on options a purchase may take."""
        return len(self._asked) if self._demand.listed else max(len(self._asked), _UNSAID)

    def _fits(self, candidate: _Candidate) -> bool:
        title = words_of(candidate.offer.title)
        return candidate.offer.low <= self._demand.limit and (not self._demand.head or self._demand.head in title)

    def _worth(self, candidate: _Candidate) -> float:
        """Return what buying it would be worth, from 0 to 1, as far as it is known."""
        demand, offer = self._demand, candidate.offer
        phrases = max(len(demand.phrases), 1)
        met: float = phrases - len(self._lacking(candidate))
        if not candidate.read:
            # What the title does not say, the pages may.
            met += _LIKELY * (phrases - met)
        wanted = len(self._asked)
        chosen = _LIKELY * wanted if candidate.options is None else min(wanted, len(self._wanted(candidate)))
        price = 1.0 if offer.high <= demand.limit else _LIKELY if offer.low <= demand.limit else 0.0
        whole = (met + chosen + price) / (phrases + wanted + 1)
        return (whole if self._fits(candidate) else whole / 2) - candidate.rank / 60 - candidate.page / 100

    def _short(self, candidate: _Candidate) -> bool:
        """Return whether the page of a product lacks a value that is wanted."""
        return len(self._wanted(candidate)) < len(self._asked)

    def _lacking(self, candidate: _Candidate, *, read: bool = True) -> list[tuple[str, ...]]:
        """Return what is wanted and was not read of a product yet; without `read`, what its title and options lack."""
        said = words_of(" . ".join((candidate.offer.title, *(candidate.options or ()), candidate.text * read)))
        joined = f" {' '.join(said)} "
        return [phrase for phrase in self._demand.phrases if not _says(joined, phrase)]

    def _wanted(self, candidate: _Candidate) -> list[str]:
        """Return the values to choose, in the order of the instruction."""
        return [option for option in self._asked if option in (candidate.options or ())]

    def _ask(self, options: Sequence[str]) -> None:
        """Learn from the options of a product which words of an instruction without a list of them name values."""
        if not self._demand.listed:
            said = f" {' '.join(self._demand.words)} "
            heard = [*self._asked, *(value for value in options if f" {' '.join(words_of(value))} " in said)]
            longer = {value for value in heard for other in heard if value != other and value in other}
            self._asked = [value for value in dict.fromkeys(heard) if value not in longer and value not in _NAMES]

    # ---- where to click

    def _leave_results(self, aim: _Candidate | None) -> str:
        if aim is None:
            self.thought = self._quote(len(self._seen.offers))
            return "click[Next >]"
        ranks = [offer.asin for offer in self._seen.offers]
        if aim.offer.asin in ranks:
            self.thought = self._quote(ranks.index(aim.offer.asin))
            return f"click[{aim.offer.asin}]"
        return "click[Next >]" if aim.page > self._page else "click[< Prev]"

    # ---- what it says of it

    def _quote(self, rank: int) -> str:
        """Return the results from the product opened last to the id of another one; one further up is named alone.

        They are copies of the page in mode `text`; in `text_rich` it has other marks between its pieces.

        Args:
            rank: Of the other one; the number of lines on the page to quote to its end.
        """
        asins = [offer.asin for offer in self._seen.offers]
        opened = self._opened.offer.asin if self._opened else ""
        first = min(asins.index(opened) if opened in asins else 0 if rank == len(asins) else rank, rank)
        pieces = self._seen.pieces
        begin = pieces.index(asins[first]) if first < len(asins) else len(pieces)
        end = pieces.index(asins[rank]) + 1 if rank < len(asins) else len(pieces)
        return " " + " [SEP] ".join(pieces[begin:end]) if begin < end else ""

    def _think(self) -> str:
        """Return what is asked for, and whether the product has it."""
        here = self._at
        if here is None or here is self._decided or self._chosen:
            return ""
        lacking = self._lacking(here)
        if self._seen.kind == "sub":
            unsaid = self._lacking(here, read=False)
            parts = [part for part in self._demand.parts if part.what == "phrase" and part.words in unsaid]
            return ",".join(f" {self._told(part)}: {_verdict(part.words not in lacking)}" for part in parts)
        if "features" in here.read:
            return ""
        told, end = "", None
        for part in self._demand.parts:
            has, is_vital = self._judge(part, here, lacking)
            told += self._demand.text[end : part.start] if end else " "
            told += f"{self._told(part)}: {_verdict(has)}"
            end = part.end
            if is_vital and not has:
                break
        return told

    def _told(self, part: Part) -> str:
        return self._demand.text[part.start : part.end]

    def _judge(self, part: Part, here: _Candidate, lacking: Sequence[tuple[str, ...]]) -> tuple[bool, bool]:
        """Return whether a product has what is asked for, and whether another page of it could not make up for that."""
        if part.what == "price":
            return here.offer.low <= self._demand.limit, True
        if part.what == "option":
            return self._told(part).lower() in (here.options or ()), True
        is_goods = self._demand.head == part.words[-1]
        return part.words not in lacking, is_goods and self._demand.head not in words_of(here.offer.title)


def _verdict(has: bool) -> str:
    return "yes" if has else "no"


def _page_number(seen: Seen) -> int:
    number = seen.pieces[1].split()[1]
    return int(number) if number.isdigit() else 1


def _says(text: str, phrase: Sequence[str]) -> bool:
    """Return whether a text has a phrase, whole or in two parts."""
    return any(
        f" {' '.join(phrase[:cut])} " in text and f" {' '.join(phrase[cut:])} ".replace("  ", " ") in text
        for cut in range(1, len(phrase) + 1)
    )
