"""Attention over a pack: each token sees the tokens before it in its own sequence, and no others."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from agentgym_tok.learner.packing import Segment

__all__ = ["NAME", "Tree", "tree_attention"]

NAME = "agentgym_tok_tree"
"""The attention implementation, as transformers knows it."""
_FOLDED = 2**20
"""Most scores of a segment for which the heads that share keys are folded: beyond it, masks cost more than copies."""
_BLOCK = 256
"""Most queries of a segment behind others that attend at once: they see each other's keys, half of them in vain."""


class Tree:
    """Hold the segments of a pack, long ones in blocks, and their masks, which all layers share.

    Args:
        segments: Of the pack.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(block for segment in segments for block in _blocks(segment))
        self.keys = [segment.end - segment.start + sum(b - a for a, b in segment.before) for segment in self.segments]
        """How many tokens each segment sees, its own included."""
        self._masks: dict[tuple[int, int | None, int, torch.dtype], Tensor | None] = {}

    def mask(self, index: int, window: int | None, group: int, like: Tensor) -> Tensor | None:
        """Return what is added to the scores of a segment, [1, 1, group * queries, keys].

        None where being causal is enough, or all see all.

        Args:
            index: The segment.
            window: How many tokens each one sees, itself included; None sees all.
            group: How often the queries stand behind each other: once for each head that shares the keys.
            like: The queries, for their dtype and device.
        """
        key = (index, window, group, like.dtype)
        if key not in self._masks:
            self._masks[key] = self._mask(index, window, group, like)
        return self._masks[key]

    def group(self, index: int, heads: int, kv_heads: int) -> int:
        """Return how many heads a segment folds into one: all that share keys, or 1."""
        segment, group = self.segments[index], heads // kv_heads
        scores = group * (segment.end - segment.start) * self.keys[index]
        return group if segment.before and scores <= _FOLDED else 1

    def _mask(self, index: int, window: int | None, group: int, like: Tensor) -> Tensor | None:
        segment, keys = self.segments[index], self.keys[index]
        queries = segment.end - segment.start
        window = keys if window is None else window
        if window >= keys and (queries == 1 or not segment.before):
            return None
        # What stands before comes first and whole, so that the k-th key has depth k.
        depth_Q = torch.arange(keys - queries, keys, device=like.device)[:, None]
        depth_S = torch.arange(keys, device=like.device)[None]
        is_hidden = (depth_S > depth_Q) | (depth_Q - depth_S >= window)
        mask = torch.zeros(is_hidden.shape, dtype=like.dtype, device=like.device).masked_fill(is_hidden, -torch.inf)
        return mask.repeat(group, 1)[None, None]


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
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
    wants_grad = torch.is_grad_enabled() and any(part.requires_grad for part in (query, key, value))
    attend: Callable[..., Tensor] = _TreeAttention.apply
    return attend(query, key, value, tree, sliding_window, options.get("scaling"), wants_grad).transpose(1, 2), None


class _TreeAttention(torch.autograd.Function):
    """Keep a graph for each segment, and add the gradients of what segments share in place.

    Left to itself, autograd makes a tensor as large as the pack for each part of it that a segment reads.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        tree: Tree,
        window: int | None,
        scaling: float | None,
        wants_grad: bool,
    ) -> Tensor:
        found = torch.empty(*query.shape[:3], value.shape[3], dtype=query.dtype, device=query.device)
        parts: list[tuple[Tensor, ...]] = []
        for index, segment in enumerate(tree.segments):
            group = tree.group(index, query.shape[1], key.shape[1])
            inputs = [_folded(query[:, :, segment.start : segment.end], group)]
            inputs += [_path(whole, segment) for whole in (key, value)]
            inputs = [part.detach().requires_grad_(wants_grad) for part in inputs]
            mask = tree.mask(index, window, group, query)
            with torch.set_grad_enabled(wants_grad):
                q, *pair = inputs
                k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in pair) if group == 1 else pair
                causal = mask is None and not segment.before
                out = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scaling)
            found[:, :, segment.start : segment.end] = _unfolded(out.detach(), query.shape[1])
            if wants_grad:
                parts.append((out, *inputs))
        ctx.parts, ctx.tree = parts, tree
        ctx.like = query, key, value
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        query, key, value = (torch.zeros_like(whole) for whole in ctx.like)
        for segment, (out, *inputs) in zip(ctx.tree.segments, ctx.parts, strict=True):
            own = slice(segment.start, segment.end)
            queries, *pairs = torch.autograd.grad(out, inputs, _folded(grad[:, :, own], query.shape[1] // out.shape[1]))
            query[:, :, own] = _unfolded(queries, query.shape[1])
            for whole, found in zip((key, value), pairs, strict=True):
                first = 0
                for start, end in (*segment.before, (segment.start, segment.end)):
                    whole[:, :, start:end] += found[:, :, first : first + end - start]
                    first += end - start
        return query, key, value, None, None, None, None


def _blocks(segment: Segment) -> Iterator[Segment]:
    """Yield a segment in blocks, each of which sees only what is not behind its end.

    A segment with nothing before it needs none: for it, being causal is a matter of the kernel.
    """
    size = segment.end - segment.start if not segment.before else _BLOCK
    for start in range(segment.start, segment.end, size):
        before = segment.before
        if start > segment.start:
            *above, (first, last) = before
            # Where a path goes on without a gap it is one range, which is read without a copy.
            own = [(first, start)] if last == segment.start else [(first, last), (segment.start, start)]
            before = (*above, *own)
        yield Segment(start, min(start + size, segment.end), before)


def _path(whole_P: Tensor, segment: Segment) -> Tensor:
    """Return what a segment sees, [1, heads, S, D]."""
    ranges = (*segment.before, (segment.start, segment.end))
    return torch.cat([whole_P[:, :, start:end] for start, end in ranges], dim=2)


def _folded(query: Tensor, group: int) -> Tensor:
    """Lay neighbouring heads behind each other: [1, heads, Q, D] as [1, heads / group, group * Q, D]."""
    return query.reshape(1, query.shape[1] // group, -1, query.shape[3])


def _unfolded(query: Tensor, heads: int) -> Tensor:
    return query.reshape(1, heads, -1, query.shape[3])


transformers.AttentionInterface.register(NAME, tree_attention)
# An ordinary forward pass of the same model has the masks that it would have with sdpa.
transformers.AttentionMaskInterface.register(NAME, sdpa_mask)
