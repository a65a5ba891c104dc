"""Where a customer stands in the shop, and the page that he sees there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self, TypeAlias

from agentgym_tok.envs.webshop.catalogue import Catalogue
from agentgym_tok.envs.webshop.pages import (
    BACK,
    NEXT,
    PAGE_SIZE,
    PREVIOUS,
    SUB_PAGES,
    Link,
    Mode,
    Page,
    item_page,
    results_page,
    start_page,
    sub_page,
)

__all__ = ["Session", "click", "search", "show"]

_Kind: TypeAlias = Literal["start", "results", "item", "sub"]

# The original looks for these in an address, in this order, to tell where it is. An address holds the words of the
# search and names and values of options, so that they can make it err.
_PAGE_NAMES = ("search_results", "item_page", "item_sub_page")


@dataclass(frozen=True, slots=True)
class Session:
    """Hold where a customer stands; every move makes a new one.

    Args:
        task: The task, which the random search depends on.
        kind: The kind of page.
        keywords: The words of the last search.
        page: The page of its results.
        product: The index of the product looked at.
        options: The values chosen for it, by name of the option; never changed in place.
        visited: The indices of products looked at since the start page.
        sub: Which of `SUB_PAGES` is open.
        searches: How often results were shown, which the random search depends on.
    """

    task: str
    kind: _Kind = "start"
    keywords: tuple[str, ...] = ()
    page: int = 1
    product: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    visited: frozenset[int] = frozenset()
    sub: str = ""
    searches: int = 0

    def restart(self) -> Self:
        """Go to the start page and forget everything else."""
        return type(self)(self.task, searches=self.searches)

    def results(self, keywords: tuple[str, ...], page: int) -> Self:
        """Go to a page of results."""
        return replace(
            self,
            kind="results",
            keywords=keywords,
            page=page,
            product=None,
            options={},
            searches=self.searches + 1,
        )

    def address(self, catalogue: Catalogue) -> str:
        """Return the part of the page's address that tells pages apart."""
        words = "+".join(self.keywords)
        if self.kind == "start":
            return ""
        if self.product is None:
            return f"search_results/{words}/{self.page}"
        asin = catalogue.product(self.product).asin
        if self.kind == "item":
            return f"item_page/{asin}/{words}/{self.page}/{json.dumps(self.options)}"
        return f"item_sub_page/{asin}/{words}/{self.page}/{self.sub.capitalize()}/{self.options}"


def search(session: Session, catalogue: Catalogue, words: str) -> Session | None:
    """Search, on any page; None where the original would fail.

    Args:
        session: Where the customer stands.
        catalogue: The products.
        words: What is searched, in lower case.
    """
    found = session.results(tuple(words.split(" ")), 1)
    return None if catalogue.find(found.keywords, "") is None else found


def click(session: Session, catalogue: Catalogue, name: str, link: Link) -> Session:
    """Click on anything but `buy now`.

    Args:
        session: Where the customer stands.
        catalogue: The products.
        name: What the link is called, in lower case.
        link: What it leads to.
    """
    if name == BACK:
        return session.restart()
    if name in (NEXT, PREVIOUS):
        address = session.address(catalogue)
        place = next((place for place in _PAGE_NAMES if place in address), None)
        if place == "search_results":
            return session.results(session.keywords, session.page + (1 if name == NEXT else -1))
        if name == PREVIOUS and place == "item_page":
            return session.results(session.keywords, session.page)
    elif name in SUB_PAGES:
        return replace(session, kind="sub", sub=name)
    if link.product is not None:
        visited = session.visited | {link.product}
        return replace(session, kind="item", product=link.product, visited=visited)
    if link.option is not None:
        return replace(session, kind="item", options={**session.options, link.option: name})
    return replace(session, kind="item")


def show(session: Session, catalogue: Catalogue, mode: Mode, *, show_attributes: bool) -> Page:
    """Return the page that the customer sees.

    Args:
        session: Where he stands.
        catalogue: The products.
        mode: How pages are written.
        show_attributes: Pages of products have a button for the attributes.
    """
    if session.kind == "start":
        return start_page(mode)
    if session.product is None:
        hits = catalogue.find(session.keywords, f"{session.task}/{session.searches}")
        assert hits is not None
        first = (session.page - 1) * PAGE_SIZE
        shown = [(index, catalogue.product(index)) for index in hits[first : first + PAGE_SIZE].tolist()]
        return results_page(mode, session.page, len(hits), shown, session.visited)
    product = catalogue.product(session.product)
    if session.kind == "sub":
        return sub_page(mode, product, session.sub)
    return item_page(mode, product, session.address(catalogue), show_attributes=show_attributes)
