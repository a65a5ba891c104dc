"""Named differences, and what a report says of them."""

from dataclasses import dataclass

from agentgym_tok.drift.align import Hunk
from agentgym_tok.drift.layout import Layout, Part
from agentgym_tok.drift.naming import name_hunk
from agentgym_tok.drift.report import Drift, DriftClass
from agentgym_tok.drift.sides import Sides
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["BEFORE", "Found", "differences", "drift_of", "repeated_ids"]

BEFORE = 8
"""Ids of the common past that a drift shows."""

_NO_IDS = as_ids([])
# Each place of these is a drift of its own; others write a whole region anew, and that is one drift.
_APART: frozenset[DriftClass] = frozenset({"retokenised", "control_token", "whitespace", "stop_token", "bos"})


@dataclass(frozen=True, slots=True)
class Found:
    """Hold one drift between two sequences.

    Args:
        kind: Its class.
        part: Where it begins on the exact side.
        pieces: Its hunks, in order.
    """

    kind: DriftClass
    part: Part
    pieces: tuple[Hunk, ...]

    @property
    def hunk(self) -> Hunk:
        """From the first differing id to the last."""
        first, last = self.pieces[0], self.pieces[-1]
        return Hunk(first.start, last.stop, first.text_start, last.text_stop)

    @property
    def count(self) -> int:
        """Ids that differ."""
        return sum(piece.count for piece in self.pieces)


def drift_of(sides: Sides, found: Found, turn: int, *, shift: int = 0) -> Drift:
    """Return a drift for a report.

    Args:
        sides: Both sequences.
        found: One of their differences.
        turn: Index of the turn that it belongs to.
        shift: Where the exact side begins in the turn's whole sequence.
    """
    hunk, part = found.hunk, found.part
    exact_T, text_T = sides.ids(hunk)
    before_T = sides.exact_T[max(0, hunk.start - BEFORE) : hunk.start]
    detail = {"call": f"in call {part.call + 1}", "stop": "at the stop token"}.get(part.place, f"in the {part.place}")
    return Drift(found.kind, turn, hunk.start + shift, found.count, exact_T, text_T, detail, before_T)


def repeated_ids(layout: Layout, ids_T: Ids) -> list[Drift]:
    """Return a drift for each call whose id belongs to an earlier turn's call as well; `turn` is the layout's number.

    Args:
        layout: The turns.
        ids_T: int32 [T], the sequence that they stand in.
    """
    return [
        Drift("call_id", number, start, stop - start, ids_T[start:stop], _NO_IDS, "an earlier call has the same id")
        for number, start, stop in layout.repeated_calls()
    ]


def differences(sides: Sides) -> list[Found]:
    """Return every drift between two sequences, in order."""
    found: list[Found] = []
    for hunk in sides.hunks():
        kind, part = name_hunk(sides, hunk)
        last = found[-1] if found else None
        if last is not None and kind not in _APART and (last.kind, last.part) == (kind, part):
            found[-1] = Found(kind, part, (*last.pieces, hunk))
        else:
            found.append(Found(kind, part, (hunk,)))
    return found
