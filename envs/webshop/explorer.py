"""A customer who finds out: searches, opens what looks right, compares what the pages say, and buys."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentgym_tok.envs.webshop.reading import Offer, Part, Seen, read_demand, read_page, words_of
from agentgym_tok.envs.webshop.thinking import quoted, recited

__all__ = ["WebShopExplorer"]

# Names of options, which look like values in the texts.
_NAMES = frozenset(
    ("color", "size", "style", "scent", "flavor", "flavor name", "finish", "length", "width", "height", "material")
)
# What of a product is not known yet is as it should be this often.
_LIKELY = 0.85
# How many options an instruction may name that does not list them.
_UNSAID = 2
_LEAVE = "click[< Prev]"
# Commands that a choice takes; a look at a product, there and back; to read on there, come back, and buy another one.
_CHOICE, _LOOK, _READ = 1, 2, 6


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

    It searches for the instruction itself, since a shop finds by values of options, too, and takes offers in the order
    of the page. It thinks aloud in the words of the texts, see `thinking`.

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
        self._is_new = False
        self.thought = ""
        self._page, self._steps, self._searches = 1, 0, 0

    def follow(self, command: str, observation: str) -> None:
        """Learn what was done and answered; see `Explorer.follow`."""
        self._steps += 1
        verb, _, rest = command.partition("[")
        name = rest.removesuffix("]").lower()
        seen, before = read_page(observation), self._seen
        self._seen, self._is_new = seen, False
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
                self._opened, self._is_new = self._at, True
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
        here = self._at
        if here is None:
            return _LEAVE
        part, command = (self._reached(here), _LEAVE) if kind == "sub" else self._due(here)
        # A decision that was made is gone through with in silence.
        if self._decided is None:
            self.thought = recited(self._seen.pieces, self._demand, part, here.offer if self._is_new else None)
        return command if aim is here else _LEAVE

    # ---- what to buy

    def _aim(self) -> _Candidate | None:
        """Return the product to look at or to buy; None to see more of them."""
        if self._decided is not None:
            return self._decided
        here = self._at
        best = max(self._known.values(), key=self._worth, default=None)
        if here is not None and self._open(here, best):
            return here
        if best is not None and self._spent(best, _LOOK):
            self._decided = best
            return best
        left = next((one for one in self._known.values() if one.options is None and self._is_kind(one)), None)
        if left is not None:
            return left
        if self._seen.kind == "results" and not self._seen.more:
            self._decided = best
        return self._decided

    def _open(self, here: _Candidate, best: _Candidate | None) -> bool:
        """Return whether to go on with the product whose page is shown: it can be the one as far as was looked."""
        if here.options is None or self._due(here)[1] == _LEAVE:
            return False
        is_whole = len(self._wanted(here)) == len(self._asked) and self._fits(here) and not self._lacking(here)
        return is_whole or not (best is not None and self._spent(best, _CHOICE))

    def _due(self, here: _Candidate) -> tuple[Part | None, str]:
        """Return what to do on the page of a product: the first part of the instruction that calls for something."""
        lacking, is_decided = self._lacking(here), here is self._decided
        left = [value for value in self._wanted(here) if value not in self._chosen]
        if here.offer.low > self._demand.limit and not is_decided:
            return None, _LEAVE
        part: Part | None = None
        for part in self._demand.parts:
            if part.what == "phrase" and part.words in lacking and not is_decided:
                return part, "click[Features]" if self._may_read(here) and not self._is_other(part, here) else _LEAVE
            value = self._value(part)
            if part.what == "option" and value not in (here.options or ()) and not is_decided:
                return part, _LEAVE
            if value in left:
                return part, f"click[{value}]"
        # A person's words may name a value across parts.
        return part, f"click[{left[0] if left else 'Buy Now'}]"

    def _reached(self, here: _Candidate) -> Part | None:
        """Return how far the phrases of the instruction were found: the first that was not, or the last one."""
        lacking, phrases = self._lacking(here), [part for part in self._demand.parts if part.what == "phrase"]
        return next((part for part in phrases if part.words in lacking), phrases[-1] if phrases else None)

    def _is_other(self, part: Part, here: _Candidate) -> bool:
        """Return whether a product is of another kind than what a part of the instruction names."""
        head = self._demand.head
        return head == part.words[-1] and head not in words_of(here.offer.title)

    def _value(self, part: Part) -> str:
        return self._demand.text[part.start : part.end].lower()

    def _spent(self, best: _Candidate, more: int) -> bool:
        """Return whether so many commands more would leave too few to come back and buy the best."""
        back = (self._seen.kind != "results") + (self._seen.kind == "sub")
        buy = 1 + abs(best.page - self._page) + self._choices() + 1
        return self._patience - self._steps < back + more + buy

    def _may_read(self, candidate: _Candidate) -> bool:
        """Return whether there are commands enough to read on, and to go and buy even another product."""
        return "features" not in candidate.read and self._patience - self._steps >= _READ + self._choices()

    def _choices(self) -> int:
        """Return how many clicks on options a purchase may take."""
        return len(self._asked) if self._demand.listed else max(len(self._asked), _UNSAID)

    def _fits(self, candidate: _Candidate) -> bool:
        return candidate.offer.low <= self._demand.limit and self._is_kind(candidate)

    def _is_kind(self, candidate: _Candidate) -> bool:
        return not self._demand.head or self._demand.head in words_of(candidate.offer.title)

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

    def _lacking(self, candidate: _Candidate) -> list[tuple[str, ...]]:
        """Return what is wanted and was not read of a product yet."""
        said = words_of(" . ".join((candidate.offer.title, *(candidate.options or ()), candidate.text)))
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
            return "click[Next >]"
        if aim.offer in self._seen.offers:
            self.thought = quoted(self._seen.pieces, aim.offer, self._opened.offer if self._opened else None)
            return f"click[{aim.offer.asin}]"
        return "click[Next >]" if aim.page > self._page else _LEAVE


def _page_number(seen: Seen) -> int:
    number = seen.pieces[1].split()[1]
    return int(number) if number.isdigit() else 1


def _says(text: str, phrase: Sequence[str]) -> bool:
    """Return whether a text has a phrase, whole or in two parts."""
    return any(
        f" {' '.join(phrase[:cut])} " in text and f" {' '.join(phrase[cut:])} ".replace("  ", " ") in text
        for cut in range(1, len(phrase) + 1)
    )
