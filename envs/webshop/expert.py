"""An expert that knows which product a goal was made from, for demonstrations and as the upper bound of scores."""

from collections.abc import Mapping

from agentgym_tok.envs.webshop.goals import Goal
from agentgym_tok.envs.webshop.pages import BUY, NEXT, PAGE_SIZE, PREVIOUS, Page
from agentgym_tok.envs.webshop.session import Session
from agentgym_tok.envs.webshop.shop import Shop

__all__ = ["next_command"]

_NOT_SAID = str.maketrans("[]\r\n", "    ")


def next_command(shop: Shop, goal: Goal, session: Session, page: Page) -> str | None:
    """Return a command that leads to the purchase of the goal's own product, from any page.

    Args:
        shop: The products.
        goal: What is wanted.
        session: Where the customer stands.
        page: What he sees.

    Returns:
        The command; None where the shop has no such product, or no search shows it.
    """
    index = shop.catalogue.index(goal.asin)
    if index is None:
        return None
    product = shop.catalogue.product(index)
    if session.product == index:
        return _choose(goal, session, page) if session.kind == "item" else f"click[{PREVIOUS}]"
    if session.kind == "results":
        if product.asin.lower() in page.links:
            return f"click[{product.asin.lower()}]"
        place = _place(shop, index, " ".join(session.keywords))
        if place is not None:
            return f"click[{NEXT if place // PAGE_SIZE >= session.page else PREVIOUS}]"
    words = (f"{goal.query} {' '.join(goal.attributes)}", product.title, product.document)
    said = (text.lower().translate(_NOT_SAID).strip() for text in words)
    return next((f"search[{text}]" for text in said if text and _place(shop, index, text) is not None), None)


def _place(shop: Shop, index: int, words: str) -> int | None:
    found = shop.catalogue.find(words.split(" "), "")
    hits = [] if found is None or words.startswith("<r>") else found.tolist()
    return hits.index(index) if index in hits else None


def _choose(goal: Goal, session: Session, page: Page) -> str:
    """Return a click on a wanted value that is not chosen yet, or on the purchase."""
    wanted = goal.goal_options.values() if isinstance(goal.goal_options, Mapping) else goal.goal_options
    for value in wanted:
        link = page.links.get(value)
        # Two wanted values of one option would replace each other for ever: the first one stays.
        if link is not None and link.option is not None and session.options.get(link.option) not in wanted:
            return f"click[{value}]"
    return f"click[{BUY}]"
