"""Audit plain messages: without ids, what can be proved is where a later rendering takes back an earlier one."""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from agentgym_tok.drift.align import Hunk
from agentgym_tok.drift.change import Conversation
from agentgym_tok.drift.found import differences, drift_of, repeated_ids
from agentgym_tok.drift.layout import Layout, TurnRange
from agentgym_tok.drift.pipeline import TextPipeline
from agentgym_tok.drift.rendering import Rendering
from agentgym_tok.drift.report import Drift, DriftReport
from agentgym_tok.drift.sides import Sides
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import as_ids

__all__ = ["audit_messages"]

_NO_IDS = as_ids([])


def audit_messages(pipeline: TextPipeline, conversation: Conversation) -> DriftReport:
    """Return the report of a conversation that is known as text alone.

    Each assistant turn was sampled after the rendering of what stood before it. So that rendering, then the one with
    the turn, then the one with what came next, and so on, must each begin with the ids of the one before.
    """
    walk = _Walk(pipeline, conversation, whole=False)
    report = walk.report()
    # A tokenizer whose control tokens reach into the text beside them has no parts that can be encoded apart.
    return report if walk.is_exact() else _Walk(pipeline, conversation, whole=True).report()


@dataclass
class _Turn:
    """Follow one turn through the renderings.

    Args:
        index: Number of the assistant message.
        place: Its place among the messages.
        start: Its first id in the newest rendering.
        stop: The id behind its last one.
        size: Ids when it was said.
        right: Ids at the start of its sequence that every rendering since has kept.
        altered: Ids of its own that later renderings have replaced.
    """

    index: int
    place: int
    start: int
    stop: int
    size: int = 0
    right: int = 0
    altered: int = 0

    @property
    def wrong(self) -> int:
        """Ids that some later rendering has otherwise, or after another past."""
        return self.size - max(0, min(self.size, self.right))


class _Walk:
    """Render a conversation turn by turn, and keep where each turn stands in the newest rendering.

    Args:
        pipeline: Of the chat format.
        conversation: The messages.
        whole: Encode each rendering whole.
    """

    def __init__(self, pipeline: TextPipeline, conversation: Conversation, *, whole: bool) -> None:
        self._pipeline, self._conversation, self._whole = pipeline, conversation, whole
        self._state = Rendering(pipeline, "")
        self._turns: list[_Turn] = []
        self._drifts: list[Drift] = []
        self._lost = 0
        """Ids of turns that the template refuses."""

    def is_exact(self) -> bool:
        """Tell whether the newest rendering has the ids of its whole text."""
        return self._whole or self._state.is_exact()

    def report(self) -> DriftReport:
        """Walk to the end, and return the report."""
        messages, places = self._conversation.messages, self._conversation.assistants
        for index, place in enumerate(places):
            try:
                self._say(index, place)
            except ChatError as error:
                self._refuse(index, place, error)
        if places and places[-1] + 1 < len(messages):
            with suppress(ChatError):  # nothing was sampled after it
                self._go_on(self._text(len(messages), generation=True), len(places) - 1)
        self._drifts += [
            replace(drift, turn=self._turns[drift.turn].index)
            for drift in repeated_ids(self._layout(self._state), self._state.ids_T)
        ]
        sampled = self._lost + sum(turn.size for turn in self._turns)
        wrong = self._lost + sum(turn.wrong for turn in self._turns)
        altered = self._lost + sum(min(turn.altered, turn.wrong) for turn in self._turns)
        drifts = tuple(sorted(self._drifts, key=lambda drift: drift.turn))
        return DriftReport(self._pipeline.chat.reference, len(places), sampled, wrong, drifts, altered)

    def _text(self, end: int, *, generation: bool = False) -> str:
        messages, tools = self._conversation.messages, self._conversation.tools
        return self._pipeline.render(messages[:end], tools, generation=generation)

    def _say(self, index: int, place: int) -> None:
        prompt, told = self._text(place, generation=True), self._text(place + 1)
        self._go_on(prompt, index)
        start = len(self._state.ids_T)
        turn = _Turn(index, place, start, start)
        self._turns.append(turn)
        kept = self._go_on(told, index)
        stops = np.flatnonzero(np.isin(self._state.ids_T[turn.start :], list(self._pipeline.closers)))
        turn.stop = turn.start + int(stops[-1]) + 1 if len(stops) else len(self._state.ids_T)
        turn.size = turn.stop - turn.start
        turn.right = turn.size if kept else 0

    def _refuse(self, index: int, place: int, error: ChatError) -> None:
        ids_T = self._pipeline.encode(self._conversation.messages[place].content)
        self._lost += len(ids_T)
        self._drifts.append(Drift("template", index, 0, max(1, len(ids_T)), ids_T, _NO_IDS, f"it refuses: {error}"))

    def _go_on(self, text: str, index: int) -> bool:
        """Go to the next rendering; tell whether it begins with the newest one."""
        state = self._state
        self._state = following = Rendering(self._pipeline, text) if self._whole else state.then(text)
        layout = self._layout(state)
        places = tuple(turn.place for turn in self._turns)
        told = self._conversation
        sides = Sides(self._pipeline, state.ids_T, following.ids_T, layout, told, told, places)
        found = differences(sides)
        for one in found:
            number = one.part.turn
            self._drifts.append(drift_of(sides, one, self._turns[number].index if number < len(self._turns) else index))
        pieces = [piece for one in found for piece in one.pieces]
        for turn in self._turns:
            _follow(turn, pieces)
        return not found

    def _layout(self, state: Rendering) -> Layout:
        ranges = [TurnRange(turn.index, turn.start, turn.stop) for turn in self._turns]
        return Layout(self._pipeline, state.ids_T, ranges, self._conversation.tools or None)


def _follow(turn: _Turn, pieces: list[Hunk]) -> None:
    """Move a turn to where it stands in the next rendering."""
    if not pieces:
        return
    turn.right = min(turn.right, pieces[0].start - turn.start)
    turn.altered += sum(max(0, min(turn.stop, piece.stop) - max(turn.start, piece.start)) for piece in pieces)
    turn.start, turn.stop = _moved(turn.start, pieces), _moved(turn.stop, pieces)


def _moved(place: int, pieces: list[Hunk]) -> int:
    shift = 0
    for piece in pieces:
        if place < piece.start or (place == piece.start < piece.stop):
            break
        if place < piece.stop:
            return piece.text_start
        shift = piece.text_stop - piece.stop
    return place + shift
