"""The KV caches of conversations: kept from turn to turn, bounded in bytes, joined into batches of unequal rows.

Only caches that hold every place by itself can be cut back to a prefix. A layer with a sliding window has forgotten
some, a recurrent one has folded all into one state, one that reads another layer's keys has none of its own, and rotary
embeddings that change with the length (`dynamic`, `longrope`) turn the early keys of a long context in another way: for
such models nothing is kept.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import transformers
from torch.nn.functional import pad

from agentgym_tok.tokens import Ids

__all__ = ["ConversationCaches", "Layers", "Prefix", "can_be_cut", "join", "lay_out", "length_of", "split"]

Layers: TypeAlias = tuple[tuple[torch.Tensor, torch.Tensor], ...]
"""Keys and values of each layer, [H, T, D]."""

_STRETCHED = frozenset({"dynamic", "longrope"})
"""Kinds of rotary embeddings whose angles depend on how long the context is."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Hold what a model computed for some ids.

    Args:
        ids_T: int32 [T], the ids.
        layers: Their keys and values.
    """

    ids_T: Ids
    layers: Layers

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values."""
        return sum(part.nbytes for layer in self.layers for part in layer)

    def cut(self, length: int) -> "Prefix":
        """Return the first so many ids; the memory is shared."""
        layers = tuple((keys[:, :length], values[:, :length]) for keys, values in self.layers)
        return Prefix(self.ids_T[:length], layers)


class ConversationCaches:
    """Keep the last prefix of each conversation, and drop the conversations that waited longest.

    Args:
        limit: Most bytes of all keys and values together.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: OrderedDict[str, Prefix] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, conversation: str, ids_T: Ids) -> Prefix | None:
        """Return the longest kept prefix of a context, without the context's last id: that one predicts the next."""
        kept = self._kept.get(conversation)
        if kept is None:
            return None
        self._kept.move_to_end(conversation)
        length = min(len(kept.ids_T), max(len(ids_T) - 1, 0))
        differs_T = kept.ids_T[:length] != ids_T[:length]
        return kept.cut(int(differs_T.argmax()) if differs_T.any() else length)

    def keep(self, conversation: str, prefix: Prefix) -> None:
        """Put a prefix in the place of the conversation's last one."""
        last = self._kept.pop(conversation, None)
        self.nbytes -= last.nbytes if last is not None else 0
        if prefix.nbytes > self.limit:
            return
        self._kept[conversation] = prefix
        self.nbytes += prefix.nbytes
        while self.nbytes > self.limit:
            self.nbytes -= self._kept.popitem(last=False)[1].nbytes

    def clear(self) -> bool:
        """Drop everything, and tell whether there was anything."""
        held = bool(self._kept)
        self._kept.clear()
        self.nbytes = 0
        return held


def can_be_cut(config: Any) -> bool:
    """Tell whether the caches of a model can be cut back to a prefix.

    Args:
        config: A configuration of transformers.
    """
    layers = transformers.DynamicCache(config=config).layers
    if any(type(layer) is not transformers.cache_utils.DynamicLayer for layer in layers):
        return False
    text = config.get_text_config(decoder=True)
    if getattr(text, "num_kv_shared_layers", 0):
        return False
    # transformers 5 has one group of parameters for the model, or one for each kind of layer.
    rope = getattr(text, "rope_parameters", None) or {}
    groups = [rope, *(group for group in rope.values() if isinstance(group, dict))]
    return not any(group.get("rope_type") in _STRETCHED for group in groups)


def lay_out(
    model: Any, kept: Sequence[Prefix | None], contexts: Sequence[Ids]
) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Lay out a batch: in each row what is kept of its context, and then what is not, both padded on the left.

    Args:
        model: A model of transformers.
        kept: A prefix of each of N contexts; None where nothing is kept.
        contexts: int32 [T] each.

    Returns:
        A `DynamicCache` that is filled as far as was kept, the other ids (int64 [N, T]), and the mask over both (int64
        [N, C + T]).
    """
    cache = transformers.DynamicCache(config=model.config)
    kept_NC = join(cache, kept)
    new = [ids_T[length_of(prefix) :] for ids_T, prefix in zip(contexts, kept, strict=True)]
    longest = max(len(ids_T) for ids_T in new)
    ids_NT = torch.zeros((len(new), longest), dtype=torch.long)
    mask_NT = torch.zeros_like(ids_NT)
    for index, ids_T in enumerate(new):
        ids_NT[index, longest - len(ids_T) :] = torch.from_numpy(ids_T.astype(np.int64))
        mask_NT[index, longest - len(ids_T) :] = 1
    device = model.device
    return cache, ids_NT.to(device), torch.cat([kept_NC, mask_NT], dim=1).to(device)


def length_of(prefix: Prefix | None) -> int:
    """Return how many ids are kept."""
    return 0 if prefix is None else len(prefix.ids_T)


def join(cache: Any, prefixes: Sequence[Prefix | None]) -> torch.Tensor:
    """Fill an empty cache with one prefix a row, padded on the left.

    Args:
        cache: An empty `DynamicCache`.
        prefixes: One for each of N rows; None where nothing is kept.

    Returns:
        int64 [N, C], on the CPU: 1 where a row has an id, 0 where it is padded.
    """
    lengths = [length_of(prefix) for prefix in prefixes]
    longest = max(lengths)
    mask_NC = torch.zeros((len(prefixes), longest), dtype=torch.long)
    for row, length in enumerate(lengths):
        mask_NC[row, longest - length :] = 1
    some = next((prefix for prefix in prefixes if prefix is not None), None)
    if some is None or longest == 0:
        return mask_NC
    rows = [prefix or some.cut(0) for prefix in prefixes]
    for index in range(len(some.layers)):
        keys, values = (
            torch.stack([pad(row.layers[index][part], (0, 0, longest - len(row.ids_T), 0)) for row in rows])
            for part in (0, 1)
        )
        cache.update(keys, values, index)
    return mask_NC


def split(cache: Any, row: int, mask_T: torch.Tensor) -> Layers:
    """Copy one row out of a cache, without its padding.

    Args:
        cache: A filled `DynamicCache`.
        row: The row.
        mask_T: bool [T], the places that are kept.
    """
    return tuple((layer.keys[row][:, mask_T], layer.values[row][:, mask_T]) for layer in cache.layers)
