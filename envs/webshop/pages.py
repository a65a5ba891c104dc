"""What the shop's pages show: their text, and what can be clicked on them, as the original's browser reads them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from agentgym_tok.envs.webshop.products import Product

__all__ = [
    "BACK",
    "BUY",
    "NEXT",
    "PAGE_SIZE",
    "PREVIOUS",
    "SEARCH",
    "SUB_PAGES",
    "Link",
    "Mode",
    "Page",
    "done_page",
    "item_page",
    "results_page",
    "start_page",
    "sub_page",
]

Mode: TypeAlias = Literal["text", "text_rich"]

SEARCH, BACK, NEXT, PREVIOUS, BUY = "search", "back to search", "next >", "< prev", "buy now"
SUB_PAGES = ("description", "features", "reviews", "attributes")
PAGE_SIZE = 10
"""Products on one page of results."""


@dataclass(frozen=True, slots=True)
class Link:
    """Hold what a click leads to, beyond its own name.

    Args:
        product: The index of a product, for its asin.
        option: The name of the option, for one of its values.
    """

    product: int | None = None
    option: str | None = None


_BUTTON = Link()
Links: TypeAlias = Mapping[str, Link]


@dataclass(frozen=True, slots=True)
class Page:
    """Hold what a page says around the instruction, and its links.

    Args:
        mode: How it is written.
        before: What stands before the instruction.
        after: What stands after it.
        links: What can be clicked, in order; all names are in lower case.
    """

    mode: Mode
    before: str
    after: str
    links: Links

    def text(self, instruction: str) -> str:
        """Return the observation."""
        words = _write([("plain", instruction)], self.mode)
        if self.mode == "text_rich":
            return f"{self.before}{words}{self.after}"
        return _SEPARATOR.join((self.before, words, self.after) if _shown(instruction) else (self.before, self.after))


_SEPARATOR = " [SEP] "
_HTML_SPACE = " \n\t\f\r"
# A piece of a page: what it is, and its words.
_Piece: TypeAlias = tuple[str, str]
_RICH = {
    "plain": "%s\n",
    "button": "[button] %s [button_]\n",
    "value": "  [button] %s [button_]\n",
    "chosen": "  [clicked button] %s [clicked button_]\n",
    "asin": "\n[button] %s [button_]\n",
    "visited": "\n[clicked button] %s [clicked button_]\n",
}


def start_page(mode: Mode) -> Page:
    """Return the page with the search bar."""
    before = _write([("plain", "WebShop"), ("plain", "Instruction: ")], mode)
    return Page(mode, before, _write([("button", "Search")], mode), {SEARCH: _BUTTON})


def results_page(
    mode: Mode, page: int, total: int, products: Sequence[tuple[int, Product]], visited: frozenset[int]
) -> Page:
    """Return one page of results.

    Args:
        mode: How it is written.
        page: Its number, from 1; a confused click can lead to page 0.
        total: How many products were found.
        products: Those on the page, with their indices.
        visited: The indices of products that were looked at.
    """
    flips = ("< Prev", "Next >") if page > 1 else ("Next >",)
    pieces: list[_Piece] = [("button", "Back to Search"), ("plain", f"Page {page} (Total results: {total})")]
    head = _write([*pieces, *(("button", flip) for flip in flips)], mode)
    entries = (_entry(product, mode, visited=index in visited) for index, product in products)
    after = ("" if mode == "text_rich" else _SEPARATOR).join((head, *entries))
    links = {BACK: _BUTTON, **{flip.lower(): _BUTTON for flip in flips}}
    links.update((product.asin.lower(), Link(product=index)) for index, product in products)
    return Page(mode, _instruction(mode), after, links)


@lru_cache(maxsize=4096)
def _entry(product: Product, mode: Mode, *, visited: bool) -> str:
    asin = "visited" if visited else "asin"
    return _write([(asin, product.asin), ("plain", product.title), ("plain", product.price_tag)], mode)


def item_page(mode: Mode, product: Product, url: str, *, show_attributes: bool) -> Page:
    """Return the page of a product.

    Args:
        mode: How it is written.
        product: The product.
        url: The address of the page: the original marks a value as chosen where its address holds it in quotes.
        show_attributes: The page has a button for the attributes.
    """
    chosen: frozenset[str] = frozenset()
    if mode == "text_rich":
        values = {value for values in product.options.values() for value in values}
        chosen = frozenset(value for value in values if f'"{value}"' in url)
    return _item(mode, product, chosen, show_attributes=show_attributes)


@lru_cache(maxsize=4096)
def _item(mode: Mode, product: Product, chosen: frozenset[str], *, show_attributes: bool) -> Page:
    buttons = ("Description", "Features", "Reviews", *(("Attributes",) if show_attributes else ()), "Buy Now")
    pieces: list[_Piece] = [*_TOP]
    for name, values in product.options.items():
        pieces.append(("plain", name))
        pieces += [("chosen" if value in chosen else "value", value) for value in values]
    pieces += [("plain", product.title), ("plain", f"Price: {product.price_tag}"), ("plain", "Rating: N.A.")]
    pieces += [("button", button) for button in buttons]
    links = {BACK: _BUTTON, PREVIOUS: _BUTTON, **{button.lower(): _BUTTON for button in buttons}}
    # Where two options have the same value, a click chooses it in the later one.
    links.update((value, Link(option=name)) for name, values in product.options.items() for value in values)
    # What the browser meets last it says first; a value without words is not shown at all.
    said = "".join(f"You have clicked {words}.\n" for kind, words in reversed(pieces) if kind == "chosen" and words)
    return Page(mode, said + _instruction(mode), _write(pieces, mode), links)


@lru_cache(maxsize=1024)
def sub_page(mode: Mode, product: Product, name: str) -> Page:
    """Return a page about a product.

    Args:
        mode: How it is written.
        product: The product.
        name: One of `SUB_PAGES`; reviews are empty, as in all published data.
    """
    words: tuple[str, ...] = ()
    if name == "description":
        words = (product.description,)
    elif name == "features":
        words = tuple(f" {feature}" for feature in product.features)
    elif name == "attributes":
        has = (f" {attribute}" for attribute in product.attributes)
        words = (*has, product.category, product.query, product.product_category)
    pieces: list[_Piece] = [*_TOP, *(("plain", text) for text in words)]
    return Page(mode, _instruction(mode), _write(pieces, mode), _SUB_LINKS)


def done_page(mode: Mode, asin: str, options: Mapping[str, str], score: float) -> str:
    """Return what the shop says after a purchase, with the fields that its own template leaves empty."""
    quoted = json.dumps(options, sort_keys=True).translate(_QUOTED_HTML)
    words = (
        *("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"),
        *("Purchased", "asin", asin, "options", quoted, "attrs", "None", "category", "None", "query", "None"),
        *("product category", "None", "Target", "asin", "options", "attrs", "price upper", "instuction text"),
        *("category", "product category", "query", "Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)"),
        *(str(score), "Reward Details ", "None"),
    )
    return _write([("plain", text) for text in words], mode)


_TOP: tuple[_Piece, ...] = (("button", "Back to Search"), ("button", "< Prev"))
_SUB_LINKS: Links = {BACK: _BUTTON, PREVIOUS: _BUTTON}
_QUOTED_HTML = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'"}


def _instruction(mode: Mode) -> str:
    return _write([("plain", "Instruction:")], mode)


def _write(pieces: Iterable[_Piece], mode: Mode) -> str:
    shown = [(kind, words) for kind, words in ((kind, _shown(words)) for kind, words in pieces) if words]
    if mode == "text":
        return _SEPARATOR.join(words.strip() for _, words in shown)
    return "".join(_RICH[kind] % words for kind, words in shown)


def _shown(words: str) -> str:
    """Return words as the original's HTML parser keeps them: blank ones become one blank, or vanish."""
    if words.strip(_HTML_SPACE):
        return words
    return " " if words and "\n" not in words else ""
