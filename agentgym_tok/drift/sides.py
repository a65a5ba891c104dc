"""Both sides of a comparison, cut into the smallest differences that have one cause each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from agentgym_tok.drift.align import Hunk, find_hunks, refine
from agentgym_tok.drift.change import Conversation, change
from agentgym_tok.drift.layout import Layout
from agentgym_tok.drift.pipeline import TextPipeline
from agentgym_tok.drift.report import DriftClass
from agentgym_tok.tokens import Ids
from agentgym_tok.types import AssistantMessage, Message

__all__ = ["Sides", "replaced"]


@dataclass(frozen=True)
class Sides:
    """Hold two sequences, and what is known of each.

    Args:
        pipeline: Of the chat format.
        exact_T: int32 [T], what was sent and sampled.
        text_T: int32 [T], what a text pipeline has.
        layout: Of the exact side.
        said: What the exact side stands for; None where nobody knows. Opened, as `kept` is, where it is not the same.
        kept: What the text side was rendered from; None where nobody knows.
        assistants: For each turn of the layout the place of its message in `said`.
    """

    pipeline: TextPipeline
    exact_T: Ids
    text_T: Ids
    layout: Layout
    said: Conversation | None = None
    kept: Conversation | None = None
    assistants: Sequence[int] = ()

    def hunks(self) -> list[Hunk]:
        """Return the differences, in order: those of equal bytes apart from those of unequal ones."""
        return [piece for hunk in find_hunks(self.exact_T, self.text_T) for piece in self._pieces(hunk)]

    def _pieces(self, hunk: Hunk) -> list[Hunk]:
        at_end = hunk.stop == len(self.exact_T)
        hunk = self._without_tail(hunk) if at_end else hunk
        one, other = self.both(hunk)
        if one == other:
            return self._cut_alike(hunk)
        joined = at_end and bool(one) and other.startswith(one)
        return [hunk] if joined or replaced(one, other) else refine(self.exact_T, self.text_T, hunk)

    def _without_tail(self, hunk: Hunk) -> Hunk:
        """Cut off what the text goes on with behind the bytes of the exact side, where it has them."""
        exact_T, text_T = self.ids(hunk)
        ends = np.cumsum([len(piece) for piece in self.pipeline.pieces(text_T)])
        size = int(np.searchsorted(ends, len(self.raw(exact_T)))) + 1
        cut = replace(hunk, text_stop=min(hunk.text_stop, hunk.text_start + size))
        one, other = self.both(cut)
        return cut if one and other.startswith(one) else hunk

    def _cut_alike(self, hunk: Hunk) -> list[Hunk]:
        """Split where tokens of both sides end at the same byte."""
        ends, text_ends = (
            np.cumsum([0, *(len(piece) for piece in self.pipeline.pieces(ids_T))]) for ids_T in self.ids(hunk)
        )
        _, places, text_places = np.intersect1d(ends, text_ends, return_indices=True)
        cuts = [
            (hunk.start + place, hunk.text_start + text_place)
            for place, text_place in zip(places.tolist(), text_places.tolist(), strict=True)
        ]
        pieces = [Hunk(start, stop, text_start, text_stop) for (start, text_start), (stop, text_stop) in pairwise(cuts)]
        return [piece for piece in pieces if not np.array_equal(*self.ids(piece))]

    def ids(self, hunk: Hunk) -> tuple[Ids, Ids]:
        """Return the ids of both sides."""
        return self.exact_T[hunk.start : hunk.stop], self.text_T[hunk.text_start : hunk.text_stop]

    def both(self, hunk: Hunk) -> tuple[bytes, bytes]:
        """Return the bytes of both sides."""
        exact_T, text_T = self.ids(hunk)
        return self.raw(exact_T), self.raw(text_T)

    def raw(self, ids_T: Ids) -> bytes:
        """Return the bytes of ids."""
        return b"".join(self.pipeline.pieces(ids_T))

    def controls(self, hunk: Hunk) -> tuple[list[int], list[int]]:
        """Return the control tokens of both sides."""
        control_ids = self.pipeline.chat.control_ids
        exact, text = ([index for index in ids_T.tolist() if index in control_ids] for ids_T in self.ids(hunk))
        return exact, text

    def turn_change(self, number: int) -> DriftClass | None:
        """Name what became of a turn's message; None where its meaning was kept, or nobody knows."""
        if self.said is not None and self.kept is not None and number < len(self.assistants):
            return self.message_change(self.assistants[number])
        kept = self.kept_message(number)
        return None if kept is None else change(_message(self.layout.said(number)), kept)

    def kept_message(self, number: int) -> Message | None:
        """Return a turn's message as the text side has it; None where nobody knows."""
        if self.kept is not None and number < len(self.assistants):
            place = self.assistants[number]
            return self.kept.messages[place] if place < len(self.kept.messages) else None
        if len(self._text_turns) != len(self.layout.turns):
            return None
        start, stop = self._text_turns[number]
        tools = None if self.said is None else self.said.tools
        return _message(self.pipeline.chat.parse(self.text_T[start:stop], tools))

    def message_change(self, place: int) -> DriftClass | None:
        """Name what became of a message of `said`; None where its meaning was kept, or nobody knows."""
        if self.said is None or self.kept is None or self.said is self.kept:
            return None
        kept = self.kept.messages
        return change(self.said.messages[place], kept[place] if place < len(kept) else None)

    @cached_property
    def _text_turns(self) -> list[tuple[int, int]]:
        found = self.pipeline.find_turns(self.text_T)
        return found or [(0, len(self.text_T))]


def replaced(one: bytes, other: bytes) -> bool:
    """Tell whether bytes that are no UTF-8 became U+FFFD on their way through text."""
    text = one.decode("utf-8", "replace")
    return "\ufffd" in text and text.encode() != one and "\ufffd".encode() in other


def _message(said: AssistantMessage) -> Message:
    return Message("assistant", said.content, tool_calls=said.tool_calls, reasoning=said.reasoning)
