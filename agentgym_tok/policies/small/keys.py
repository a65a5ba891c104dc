"""The keys and values of conversations: kept from turn to turn within bytes, and copied where contexts begin alike."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.policies.small.shape import Shape
from agentgym_tok.tokens import Ids

__all__ = ["BLOCK", "Kept", "KeptConversations", "common"]

BLOCK = 64
"""Places by which room grows. A token attends to whole blocks, so that its shape depends on its position only."""

_DONORS = 64
"""So many conversations, those used last, are searched for a common beginning."""


class Kept:
    """Hold what a model computed for the ids of one context.

    Args:
        shape: What the model is.
    """

    def __init__(self, shape: Shape) -> None:
        self._sizes = (shape.layers, shape.kv_heads, shape.head_size)
        self._ids = np.zeros(0, np.int32)
        self.keys, self.values = self._room(0)
        """float32 [layers, kv_heads, blocks, D, BLOCK] and [layers, kv_heads, blocks, BLOCK, D]: each product reads on
        from its beginning to its end."""
        self.length = 0
        """How many ids are computed."""
        self.end = 0
        """How many are set."""

    def _room(self, blocks: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        layers, heads, width = self._sizes
        # Zeros: what is masked is read, too, and must be a number.
        keys = np.zeros((layers, heads, blocks, width, BLOCK), np.float32)
        return keys, np.zeros((layers, heads, blocks, BLOCK, width), np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def ids(self) -> Ids:
        """The ids that are computed; a view."""
        return self._ids[: self.length]

    def expect(self, ids_T: Ids | Sequence[int]) -> None:
        """Set the ids that come behind those that are computed, and make room for them."""
        self.end = self.length + len(ids_T)
        if self.end > len(self._ids):
            self._grow(self.end)
        self._ids[self.length : self.end] = ids_T

    def expected(self, start: int, stop: int) -> Ids:
        """Return ids by their places."""
        return self._ids[start:stop]

    def _grow(self, need: int) -> None:
        blocks = -(-max(need, len(self._ids) * 3 // 2) // BLOCK)
        ids, keys, values, filled = self._ids, self.keys, self.values, -(-self.length // BLOCK)
        self._ids, (self.keys, self.values) = np.zeros(blocks * BLOCK, np.int32), self._room(blocks)
        self._ids[: self.length] = ids[: self.length]
        self.keys[:, :, :filled] = keys[:, :, :filled]
        self.values[:, :, :filled] = values[:, :, :filled]

    def begin_like(self, other: "Kept", length: int) -> None:
        """Take over the first ids of another context, which this one's own are the beginning of."""
        first, behind = self.length // BLOCK, -(-length // BLOCK)
        self.expect(other.ids[self.length : length])
        self.keys[:, :, first:behind] = other.keys[:, :, first:behind]
        self.values[:, :, first:behind] = other.values[:, :, first:behind]
        # What lies behind the common ids may be no number, and is read before it is computed: masked, but read.
        end = length - (behind - 1) * BLOCK
        self.keys[:, :, behind - 1, :, end:] = 0
        self.values[:, :, behind - 1, end:] = 0
        self.length = length


class KeptConversations:
    """Keep what was computed for each conversation, and drop those that waited longest.

    Args:
        limit: Most bytes of all keys and values together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, conversation: str) -> Kept | None:
        """Hand out what is kept of a conversation: it goes on in place."""
        kept = self._kept.pop(conversation, None)
        self.nbytes -= kept.nbytes if kept is not None else 0
        return kept

    def latest(self) -> Iterable[Kept]:
        """Return the conversations that were used last."""
        return islice(reversed(self._kept.values()), _DONORS)

    def keep(self, conversation: str, kept: Kept) -> None:
        """Put it in the place of the conversation's last one."""
        self.take(conversation)
        if kept.nbytes > self._limit:
            return
        self._kept[conversation] = kept
        self.nbytes += kept.nbytes
        while self.nbytes > self._limit:
            self.nbytes -= self._kept.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self.nbytes = 0


def common(first_T: Ids, second_T: Ids) -> int:
    """Return how many ids two contexts begin with alike."""
    length = min(len(first_T), len(second_T))
    differs_T = first_T[:length] != second_T[:length]
    place = int(differs_T.argmax()) if length else 0
    return place if length and differs_T[place] else length
