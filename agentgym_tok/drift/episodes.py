"""Audit an episode: its exact ids against the rows that a text pipeline makes of its messages."""

import dataclasses
from functools import cached_property

import numpy as np

from agentgym_tok.drift.align import common_prefix
from agentgym_tok.drift.chains import Chain, chains_of
from agentgym_tok.drift.change import Conversation
from agentgym_tok.drift.evidence import Evidence
from agentgym_tok.drift.found import Found, differences, drift_of, repeated_ids
from agentgym_tok.drift.layout import Layout
from agentgym_tok.drift.pipeline import TextPipeline
from agentgym_tok.drift.report import Drift, DriftClass, DriftReport
from agentgym_tok.drift.sides import Sides
from agentgym_tok.drift.turns import TurnAudit
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.trace import Episode

__all__ = ["audit_episode"]

_NO_IDS = as_ids([])
_SWAPS: frozenset[DriftClass] = frozenset({"system_swap", "tools_swap"})


def audit_episode(pipeline: TextPipeline, episode: Episode, evidence: Evidence) -> DriftReport:
    """Return the report of one episode, without its subagents.

    Raises:
        FingerprintMismatch: Its ids belong to another chat format.
        InvalidIds: An id is outside the vocabulary.
    """
    chains = chains_of(pipeline, episode)
    for chain in chains:
        pipeline.chat.check(chain.turns[-1].context)
        as_ids(chain.ids, where=f"episode {episode.id}", vocab_size=pipeline.chat.vocab_size)
    rows = _Rows(pipeline, evidence, chains[-1].final if chains else None)
    reports = [_ChainAudit(rows, chain).report() for chain in chains]
    report = DriftReport.of(pipeline.chat.reference, reports)
    drifts = [dataclasses.replace(drift, episode=episode.id) for drift in report.drifts]
    return dataclasses.replace(report, drifts=tuple(sorted(drifts, key=lambda drift: (drift.turn, drift.position))))


class _Rows:
    """Make the rows that a text pipeline trains, one for each conversation in its last state.

    Args:
        pipeline: Of the chat format.
        evidence: What is known beside the trace.
        last: The chain whose conversation a harness's own history would be.
    """

    def __init__(self, pipeline: TextPipeline, evidence: Evidence, last: Chain | None) -> None:
        self.pipeline = pipeline
        self.evidence = evidence
        self.shown: set[tuple[DriftClass, bytes, bytes]] = set()
        self._last = last
        self._made: dict[Chain, tuple[Ids, Conversation | None]] = {}

    def row(self, chain: Chain) -> tuple[Ids, Conversation | None]:
        """Return the ids of a final chain's row, and the conversation that they were rendered from.

        Raises:
            ChatError: The template refuses the conversation.
        """
        if chain not in self._made:
            self._made[chain] = self._make(chain)
        return self._made[chain]

    def _make(self, chain: Chain) -> tuple[Ids, Conversation | None]:
        kept = None if chain.told is None else chain.told[0]
        if chain is self._last and self.evidence.history is not None:
            kept = Conversation(self.evidence.history, chain.tools)
        if kept is None:
            return self.pipeline.again(chain.ids), None  # the text of everything is all that a pipeline could keep
        if self.evidence.tools is not None:
            kept = dataclasses.replace(kept, tools=self.evidence.tools)
        text = self.pipeline.render(kept.messages, kept.tools)
        return self.pipeline.encode(text, special_tokens=self.evidence.special_tokens), kept


class _ChainAudit:
    """Compare one chain with the row of the conversation that it has become.

    A text pipeline keeps one list of messages for a conversation, and trains on what that is in the end. So a chain
    whose past somebody rewrote is held against the row of the chain that followed.
    """

    def __init__(self, rows: _Rows, chain: Chain) -> None:
        self._rows = rows
        self._chain = chain
        own = range(chain.own, len(chain.turns))
        self._counted = [number for number in own if chain.turns[number].completion.ids_exact]

    def report(self) -> DriftReport:
        """Return the report of the turns that are the chain's own."""
        chain, pipeline = self._chain, self._rows.pipeline
        sampled = sum(chain.ranges[number].size for number in self._counted)
        try:
            sides = self._sides()
        except ChatError as error:
            return self._refused(sampled, str(error))
        every = differences(sides)
        end = _text_end(sides, every)
        found = [one for one in every if self._is_news(sides, one)]
        altered_T = np.zeros(len(sides.exact_T), dtype=bool)
        for piece in (piece for one in found for piece in one.pieces):
            altered_T[piece.start : piece.stop] = True
        same = common_prefix(sides.exact_T, sides.text_T)
        drifts: list[Drift] = []
        right = altered = 0
        for number in self._counted:
            turn = chain.ranges[number]
            alone = TurnAudit(pipeline, chain.ids, turn)
            for piece in alone.pieces:
                altered_T[turn.start + piece.start : turn.start + piece.stop] = True
            found = [one for one in found if one.part.turn != number or not alone.explains(one)]
            drifts += alone.drifts(self._rows.evidence, self._closing(sides, number, end))
            right += max(0, min(same - turn.start, alone.same))
            altered += int(altered_T[turn.start : turn.stop].sum())
        drifts += [
            dataclasses.replace(drift, turn=chain.ranges[drift.turn].turn)
            for drift in repeated_ids(sides.layout, chain.ids)
            if drift.turn >= chain.own
        ]
        drifts += [drift_of(sides, one, chain.ranges[one.part.turn].turn) for one in found]
        turns = len(self._counted)
        return DriftReport(pipeline.chat.reference, turns, sampled, sampled - right, tuple(drifts), altered)

    def _sides(self) -> Sides:
        chain, pipeline = self._chain, self._rows.pipeline
        text_T, kept = self._rows.row(chain.final)
        layout = Layout(pipeline, chain.ids, chain.ranges, chain.tools or None)
        if chain.told is None:
            return Sides(pipeline, chain.ids, text_T, layout, kept=kept)
        said, places = chain.told
        if kept is None or kept is said:
            return Sides(pipeline, chain.ids, text_T, layout, said, kept, places)
        shift = 0 if said.has_system else 1
        places = tuple(place + shift for place in places)
        return Sides(pipeline, chain.ids, text_T, layout, said.opened(), kept.opened(), places)

    def _refused(self, sampled: int, message: str) -> DriftReport:
        chain, reference = self._chain, self._rows.pipeline.chat.reference
        if not sampled:
            return DriftReport(reference, len(self._counted), 0, 0)
        turn = chain.ranges[self._counted[0]]
        lost_T = chain.ids[turn.start : turn.stop]
        drift = Drift("template", turn.turn, turn.start, sampled, lost_T, _NO_IDS, f"it refuses: {message}")
        return DriftReport(reference, len(self._counted), sampled, sampled, (drift,), sampled)

    def _is_news(self, sides: Sides, found: Found) -> bool:
        """Tell whether a difference is the chain's own, and not one that an earlier chain's report has already."""
        chain = self._chain
        if found.part.turn < chain.own:
            return False
        if found.part.turn > 0:
            return True
        exact, text = sides.both(found.hunk)
        key = (found.kind, exact, text)
        known = key in self._rows.shown
        self._rows.shown.add(key)
        if chain.source is None or found.part.place != "prompt" or found.hunk.start >= self._new_from:
            return True
        # The past as it was rendered again: what became of it was told where it was said.
        return found.kind in _SWAPS and not known

    @cached_property
    def _new_from(self) -> int:
        """Where a rewritten prompt goes beyond what earlier turns have said."""
        end = self._chain.ranges[0].start
        turns = self._rows.pipeline.find_turns(self._chain.ids[:end])
        return max((stop for start, stop in turns if start < end), default=0)

    def _closing(self, sides: Sides, number: int, end: int) -> int | None:
        """Return the id with which the row closes a turn; None where it does not."""
        stop = self._chain.ranges[number].stop
        following = sides.exact_T[stop:] if stop < len(sides.exact_T) else sides.text_T[end:]
        closes = len(following) > 0 and int(following[0]) in self._rows.pipeline.closers
        return int(following[0]) if closes else None


def _text_end(sides: Sides, found: list[Found]) -> int:
    """Return the place in the text that corresponds to the end of the exact ids."""
    last = found[-1].hunk if found else None
    return len(sides.exact_T) + (last.text_stop - last.stop if last is not None else 0)
