"""Attention over a pack: each token sees the tokens before it in its own sequence, and no others."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from agentgym_tok.learner.packing import Segment

__all__ = ["NAME", "Tree", "tree_attention"]

NAME = "agentgym_tok_tree"
"""The attention implementation, as transformers knows it."""


class Tree:
    """Hold the segments of a pack, and their masks, which all layers share.

    Args:
        segments: Of the pack.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.sizes = [segment.end - segment.start for segment in segments]
        self._masks: dict[tuple[int, int | None, torch.dtype], Tensor | None] = {}

    def mask(self, index: int, window: int | None, like: Tensor) -> Tensor | None:
        """Return what is added to the scores of a segment, [1, 1, queries, keys]; None where being causal is enough.

        Args:
            index: The segment.
            window: How many tokens each one sees, itself included; None sees all.
            like: The queries, for their dtype and device.
        """
        key = (index, window, like.dtype)
        if key not in self._masks:
            self._masks[key] = self._mask(index, window, like)
        return self._masks[key]

    def _mask(self, index: int, window: int | None, like: Tensor) -> Tensor | None:
        queries = self.sizes[index]
        keys = sum(self.sizes[above] for above in self.segments[index].ancestors) + queries
        window = keys if window is None else window
        if window >= keys and queries in {1, keys}:
            return None
        # Ancestors come first and whole, so that the k-th key has depth k.
        depth_Q = torch.arange(keys - queries, keys, device=like.device)[:, None]
        depth_S = torch.arange(keys, device=like.device)[None]
        is_hidden = (depth_S > depth_Q) | (depth_Q - depth_S >= window)
        return torch.zeros(is_hidden.shape, dtype=like.dtype, device=like.device).masked_fill(is_hidden, -torch.inf)[
            None, None
        ]


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    tree: Tree | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend segment by segment; where no tree is given, as `sdpa` does.

    The work is that of the distinct tokens alone: a shared prefix attends once, and its keys serve all who branch off.

    Args:
        module: The layer.
        query: float [1, heads, P, D].
        key: float [1, KV heads, P, D].
        value: float [1, KV heads, P, D].
        attention_mask: Of an ordinary forward pass.
        tree: The pack's.
        sliding_window: The layer's.
        options: The rest of what transformers passes; `scaling` is kept.

    Returns:
        float [1, P, heads, D], and None for the weights.

    Raises:
        NotImplementedError: The model has a kind of attention that this is not.
    """
    if tree is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    unknown = [name for name in ("softcap", "s_aux", "position_bias") if options.get(name) is not None]
    if unknown:
        raise NotImplementedError(f"attention with {', '.join(unknown)}")
    scaling = options.get("scaling")
    # Split once: the gradients of a prefix add up piece by piece, and are joined once.
    queries, keys, values = (torch.split(whole, tree.sizes, dim=2) for whole in (query, key, value))
    found: list[Tensor] = []
    for index, segment in enumerate(tree.segments):
        path = (*segment.ancestors, index)
        k, v = (torch.cat([parts[one] for one in path], dim=2) for parts in (keys, values))
        mask = tree.mask(index, sliding_window, query)
        causal = mask is None and len(path) == 1
        found.append(sdpa_attention_forward(module, queries[index], k, v, mask, scaling=scaling, is_causal=causal)[0])
    return torch.cat(found, dim=1), None


transformers.AttentionInterface.register(NAME, tree_attention)
# An ordinary forward pass of the same model has the masks that it would have with sdpa.
transformers.AttentionMaskInterface.register(NAME, sdpa_mask)
