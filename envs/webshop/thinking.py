"""What a customer thinks aloud, in the words of the texts: ids to copy, digits to compare, how far a demand is met."""

from collections.abc import Sequence

from agentgym_tok.envs.webshop.reading import Demand, Offer, Part

__all__ = ["quoted", "recited"]

# Pieces of a line of the results: id, title, price.
_LINE = 3
_PRICE = "Price: "


def quoted(pieces: Sequence[str], offer: Offer, opened: Offer | None) -> str:
    """Say which line of the results to open: its id, behind the price of the one that was opened last if that is above.

    It is a copy of the page in mode `text`; in `text_rich` it has other marks between its pieces.

    Args:
        pieces: Of the page.
        offer: The line; its id stands on the page.
        opened: The product that was opened last.
    """
    end = pieces.index(offer.asin)
    begins = opened is not None and opened.asin in pieces[max(end - _LINE, 0) : end]
    return " " + " [SEP] ".join((pieces[end - 1], offer.asin) if begins else (offer.asin,))


def recited(pieces: Sequence[str], demand: Demand, part: Part | None, fresh: Offer | None) -> str:
    """Say on a page of a product how far the instruction is met.

    Args:
        pieces: Of the page.
        demand: The instruction, which is said as far as the part that calls for what is done.
        part: That part; None says nothing of it.
        fresh: The product, where it was opened just now: its price comes first, beside the limit, and digits of both.
    """
    said = [] if part is None else [demand.text[: part.end]]
    price = next((piece for piece in pieces if piece.startswith(_PRICE)), "")
    limit = next((part for part in demand.parts if part.what == "price"), None)
    if fresh is not None and price and limit is not None:
        said = [price, demand.text[limit.start : limit.end] + _compared(fresh.low, demand.limit), *said]
    return f" {', '.join(said)}" if said else ""


def _compared(price: float, limit: float) -> str:
    """Return the digits of two prices beside each other, from the hundreds down to those that differ: `:0/0:4/7`."""
    both = [f"{value:06.2f}" for value in (price, limit)]
    width = max(map(len, both))
    said = ""
    for one, other in zip(*(text.zfill(width).replace(".", "") for text in both), strict=True):
        said += f":{one}/{other}"
        if one != other:
            break
    return said
