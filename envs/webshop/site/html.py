"""A page of a WebShop site as the original's browser reads it: its text, and what can be clicked on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentgym_tok.envs.webshop.pages import Mode
from agentgym_tok.errors import MissingExtra

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from bs4.element import PageElement, Tag

__all__ = ["SiteLink", "SitePage", "Strings", "read_page"]

_Kind: TypeAlias = Literal["button", "product", "value"]
_HIDDEN = frozenset({"style", "script", "head", "title", "meta", "[document]"})
_SEPARATOR = " [SEP] "


@dataclass(frozen=True, slots=True)
class SiteLink:
    """Hold what a click asks the site for.

    Args:
        kind: A button, a product, or a value of an option.
        address: Where it leads, perhaps relative to the page.
        option: The name of the option, for one of its values.
    """

    kind: _Kind
    address: str
    option: str = ""


Strings: TypeAlias = tuple[tuple[str, str], ...]
"""The visible texts of a page, each behind what it stands in: `button`, `label`, `product-link` or nothing."""


@dataclass(frozen=True, slots=True)
class SitePage:
    """Hold a page.

    Args:
        strings: Its texts.
        links: What can be clicked, in order.
        search: Where a search is sent; None where the page has no search bar.
        instruction: The task in words; None where the page names none.
        score: The score of the purchase, on the last page.
        parts: The parts of the score as the site prints them.
    """

    strings: Strings
    links: Mapping[str, SiteLink]
    search: str | None
    instruction: str | None
    score: str | None
    parts: str

    def text(self, mode: Mode, chosen: Callable[[str], bool], visited: Callable[[str], bool]) -> str:
        """Return the observation.

        Args:
            mode: How it is written.
            chosen: Whether a value of an option was chosen.
            visited: Whether a product was looked at.
        """
        if mode == "text":
            return _SEPARATOR.join(text.strip() for _, text in self.strings)
        said, lines = "", ""
        for place, text in self.strings:
            clicked = (place == "label" and chosen(text)) or (place == "product-link" and visited(text))
            if place == "label" and clicked:
                said = f"You have clicked {text}.\n{said}"
            before = {"label": "  ", "product-link": "\n"}.get(place, "")
            button = "clicked button" if clicked else "button"
            lines += f"{before}[{button}] {text} [{button}_]\n" if place else f"{text}\n"
        return said + lines


def read_page(html: str) -> SitePage:
    """Read a page; one that is no page of a WebShop site has no instruction and no score.

    Raises:
        MissingExtra: beautifulsoup4 is not installed.
    """
    try:
        from bs4 import BeautifulSoup, ParserRejectedMarkup  # noqa: PLC0415
    except ImportError as error:
        what = "reading pages of a WebShop site needs beautifulsoup4"
        raise MissingExtra(what, where="WebShop, backend='http'", fix="pip install beautifulsoup4") from error
    try:
        soup = BeautifulSoup(html, "html.parser")
    except ParserRejectedMarkup:
        return SitePage((), {}, None, None, None, "")
    bar = soup.find(id="search_input")
    told = soup.find(id="instruction-text")
    reward, details = soup.find(id="reward"), soup.find(id="reward_info")
    score = None if reward is None else reward.find("pre")
    return SitePage(
        _strings(soup),
        _links(soup),
        None if bar is None else _form(bar),
        None if told is None else told.get_text().strip().removeprefix("Instruction:").strip(),
        None if score is None else score.get_text().strip(),
        "" if details is None else details.get_text().strip(),
    )


def _strings(soup: "BeautifulSoup") -> Strings:
    from bs4.element import Comment  # noqa: PLC0415

    shown = []
    for string in soup.find_all(string=True):
        parent = string.parent
        # Space between tags is one line feed to the parser, and nothing to a reader.
        if parent is None or parent.name in _HIDDEN or isinstance(string, Comment) or string == "\n":
            continue
        place = parent.name if parent.name in {"button", "label"} else ""
        shown.append(("product-link" if parent.get("class") == ["product-link"] else place, str(string)))
    return tuple(shown)


def _links(soup: "BeautifulSoup") -> dict[str, SiteLink]:
    links = {button.get_text().lower(): SiteLink("button", _form(button)) for button in soup.find_all(class_="btn")}
    for product in soup.find_all(class_="product-link"):
        links[product.get_text().lower()] = SiteLink("product", str(product.get("href", "")))
    for value in soup.select('input[type="radio"]'):
        address, option = str(value.get("data-url", "")), str(value.get("name", "")).lower()
        links[str(value.get("value", ""))] = SiteLink("value", address, option)
    return links


def _form(element: "PageElement") -> str:
    """Return where the form around an element is sent."""
    form: Tag | None = element.find_parent("form")
    return "" if form is None else str(form.get("action", ""))
