"""A conversation that is rendered again and again while it grows; what did not change is encoded once."""

from bisect import bisect_left

import numpy as np

from agentgym_tok.drift.pipeline import TextPipeline
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["Rendering"]


class Rendering:
    """Hold a rendered text with its ids.

    A tokenizer looks for control tokens in a text before anything else, so that what stands behind one is encoded the
    same whatever stands before it. `then` relies on that, and `is_exact` proves it.

    Args:
        pipeline: Of the chat format.
        text: The rendering.
        before: An earlier rendering of the same conversation.

    Attributes:
        ids_T: int32 [T], the ids of the whole text.
        starts: Where control tokens begin in the text.
        places: Where they stand in the ids.
    """

    def __init__(self, pipeline: TextPipeline, text: str, before: "Rendering | None" = None) -> None:
        kept, start, place = 0, 0, 0
        if before is not None and len(before.starts) == len(before.places):
            # The last control token before the change is looked at again: a longer one may begin with it.
            kept = max(0, bisect_left(before.starts, _common(before.text, text)) - 1)
            start, place = (before.starts[kept], before.places[kept]) if kept else (0, 0)
        past = before if kept else None
        rest_T = pipeline.encode(text[start:])
        controls = np.flatnonzero(np.isin(rest_T, list(pipeline.chat.control_ids)))
        self._pipeline = pipeline
        self.text: str = text
        self.ids_T: Ids = rest_T if past is None else as_ids(np.concatenate((past.ids_T[:place], rest_T)))
        self.starts: list[int] = [] if past is None else past.starts[:kept]
        self.starts += [start + found for found in pipeline.control_starts(text[start:])]
        self.places: list[int] = [] if past is None else past.places[:kept]
        self.places += [place + found for found in controls.tolist()]

    def then(self, text: str) -> "Rendering":
        """Return the next rendering of the conversation."""
        return Rendering(self._pipeline, text, self)

    def is_exact(self) -> bool:
        """Tell whether the ids are those of the whole text."""
        return np.array_equal(self.ids_T, self._pipeline.encode(self.text))


def _common(one: str, other: str) -> int:
    """Return the number of characters at the start of both."""
    if other.startswith(one):
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
