"""What can be told of one turn alone: what becomes of it as text, and what its record contradicts."""

from collections.abc import Iterator

import numpy as np

from agentgym_tok.drift.align import Hunk
from agentgym_tok.drift.evidence import Evidence
from agentgym_tok.drift.found import BEFORE, Found, differences, drift_of
from agentgym_tok.drift.layout import Layout, TurnRange
from agentgym_tok.drift.pipeline import TextPipeline
from agentgym_tok.drift.report import Drift
from agentgym_tok.drift.sides import Sides
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["TurnAudit"]

_NO_IDS = as_ids([])


class TurnAudit:
    """Compare one turn with itself after a way through text.

    Args:
        pipeline: Of the chat format.
        ids_T: int32 [T], the whole sequence that the turn stands in.
        turn: Where.

    Attributes:
        found: What differs after encoding the turn's own text.
    """

    def __init__(self, pipeline: TextPipeline, ids_T: Ids, turn: TurnRange) -> None:
        self._pipeline, self._ids_T, self._turn = pipeline, ids_T, turn
        self._turn_T = ids_T[turn.start : turn.stop]
        self._sides = self._against(pipeline.again(self._turn_T))
        self.found = [self._as_text(found) for found in differences(self._sides)]

    def _against(self, text_T: Ids) -> Sides:
        whole = TurnRange(self._turn.turn, 0, len(self._turn_T))
        return Sides(self._pipeline, self._turn_T, text_T, Layout(self._pipeline, self._turn_T, [whole]))

    @staticmethod
    def _as_text(found: Found) -> Found:
        # Nothing but a second encoding stands between the sides, so whatever looks otherwise is one.
        return found if found.kind == "control_token" else Found("retokenised", found.part, found.pieces)

    @property
    def same(self) -> int:
        """Ids of the turn before its first difference."""
        return self.found[0].hunk.start if self.found else len(self._turn_T)

    @property
    def pieces(self) -> list[Hunk]:
        """Every difference, in the turn's own places."""
        return [piece for found in self.found for piece in found.pieces]

    def explains(self, found: Found) -> bool:
        """Tell whether a difference of the whole sequence is one that the turn alone shows."""
        start, stop = found.hunk.start - self._turn.start, found.hunk.stop - self._turn.start
        return any(own.kind == found.kind and own.hunk.start < stop and start < own.hunk.stop for own in self.found)

    def drifts(self, evidence: Evidence, closing: int | None) -> Iterator[Drift]:
        """Yield every drift that the turn alone shows.

        Args:
            evidence: What the record holds beside ids.
            closing: The id with which a text pipeline closes the turn where the policy did not; None where it does not.
        """
        index, start, stop = self._turn
        for found in self.found:
            yield drift_of(self._sides, found, index, shift=start)
        if index in evidence.streamed:
            sides = self._against(evidence.streamed[index])
            for found in differences(sides):
                lost = found if found.kind == "retokenised" else Found("stream_loss", found.part, found.pieces)
                yield drift_of(sides, lost, index, shift=start)
        size = stop - start
        count = evidence.logprobs.get(index, size)
        if count != size:
            detail = f"{count} log-probabilities for {size} ids"
            yield Drift("logprob_misalignment", index, start, abs(count - size), _NO_IDS, _NO_IDS, detail)
        if self._begins_with_header():
            header_T, detail = self._pipeline.header, "the turn repeats the end of its prompt"
            yield Drift("template", index, start, len(header_T), header_T, _NO_IDS, detail)
        if closing is not None and int(self._turn_T[-1]) not in self._pipeline.closers:
            detail = "the policy never drew it, and a text pipeline trains it"
            yield Drift("stop_token", index, stop, 1, _NO_IDS, as_ids([closing]), detail, self._turn_T[-BEFORE:])

    def _begins_with_header(self) -> bool:
        header_T, start = self._pipeline.header, self._turn.start
        size = len(header_T)
        ends = [self._turn_T[:size], self._ids_T[max(0, start - size) : start]]
        return size > 0 and all(np.array_equal(part_T, header_T) for part_T in ends)
