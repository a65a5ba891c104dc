"""Where two draws of the same turn part ways."""

from collections.abc import Iterable, Sequence

from agentgym_tok.tokens import Ids
from agentgym_tok.types import Completion

__all__ = ["parting", "partings", "shown_partings"]


def parting(a_T: Ids, b_T: Ids) -> int | None:
    """Return the first place where ids differ or only one goes on; None where they are equal."""
    for place, (a, b) in enumerate(zip(a_T.tolist(), b_T.tolist(), strict=False)):
        if a != b:
            return place
    return None if len(a_T) == len(b_T) else min(len(a_T), len(b_T))


def partings(pairs: Iterable[tuple[Completion, Completion]]) -> list[int]:
    """Return the places where pairs of turns part; those that are equal are left out."""
    places = (parting(a.ids_T, b.ids_T) for a, b in pairs)
    return [place for place in places if place is not None]


def shown_partings(places: Sequence[int], of: int) -> str:
    """Say how many turns part, and where."""
    return f"{len(places)} of {of} turns part, at token {', '.join(map(str, sorted(places)[:6]))}"
