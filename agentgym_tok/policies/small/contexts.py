"""The contexts of turns that are drawn together: what each takes over, and in which passes the rest is computed."""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from agentgym_tok.policies.small.draw import SeededTurn
from agentgym_tok.policies.small.forward import Part
from agentgym_tok.policies.small.keys import BLOCK, Kept, common

__all__ = ["Row", "borrow", "parted", "passes"]

_PASS = 256
"""Most tokens of one forward pass; it bounds what a pass holds in memory."""


class Row:
    """Hold a turn that is drawn, and what is computed of its context.

    Args:
        turn: The turn.
        kept: Nothing yet; `update` says after how many updates the weights were those that computed it.
    """

    def __init__(self, turn: SeededTurn, kept: Kept) -> None:
        self.turn = turn
        self.kept = kept
        self.update = -1
        self.context_T = turn.request.ids_T


def borrow(row: Row, others: Iterable[Kept]) -> None:
    """Take over the beginning that a context has in common with another one, where that is more than it has."""
    shared = [(common(other.ids, row.context_T[:-1]), other) for other in others]
    length, other = max(shared, key=itemgetter(0), default=(0, row.kept))
    if length > row.kept.length:
        row.kept.begin_like(other, length)


def parted(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Part contexts into those to compute now, and those that can take over much of what these compute."""
    early: list[Row] = []
    late: list[Row] = []
    for row in rows:
        enough, context_T = row.kept.length + BLOCK, row.context_T[:-1]
        waits = len(context_T) >= enough and any(common(other.context_T, context_T) >= enough for other in early)
        (late if waits else early).append(row)
    return early, late


def passes(conversations: Iterable[Kept]) -> Iterator[list[Part]]:
    """Cut what is set and not computed into passes; each is computed before the next one is asked for."""
    parts: list[Part] = []
    room = _PASS
    for kept in conversations:
        place = kept.length
        while place < kept.end:
            stop = min(kept.end, place + room)
            parts.append(Part(kept, stop))
            place, room = stop, room - (stop - place)
            if not room:
                yield parts
                parts, room = [], _PASS
    if parts:
        yield parts
