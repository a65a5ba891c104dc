"""One forward pass of a small Qwen2 over tokens of many conversations at once.

A pass is a list of tokens, each with its place in its own conversation; where they stand in the list changes nothing.
Linear layers go by tiles (`tiles`). Attention goes token by token: over whole blocks of keys up to its own place, those
behind it masked, in one product of a shape that depends on its position only. So the bits of a token's logits depend on
its context alone: not on the batch, on what was cached, or on how a prompt was cut into passes.

The architecture is Qwen2's (https://arxiv.org/abs/2407.10671): RMS norms, rotary positions, biases on queries, keys and
values, groups of heads that share keys, a gated linear unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.policies.small.keys import BLOCK, Kept
from agentgym_tok.policies.small.shape import EMBEDDING, HEAD, Shape
from agentgym_tok.policies.small.tensors import Tensors
from agentgym_tok.policies.small.tiles import ROWS, Linear

__all__ = ["Network", "Part", "queries_of"]

_SCORES = 2**18
"""Most attention weights of one group of tokens: they stay in the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Name the tokens of one conversation that a pass computes: those from its `length` on.

    Args:
        kept: The conversation; its ids are set.
        stop: The place behind the last one.
    """

    kept: Kept
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Hold neighbours of one conversation that attend to the same blocks, and their rows in the pass."""

    kept: Kept
    start: int
    stop: int
    rows: slice


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Hold runs of any conversations that attend to equally many blocks of keys."""

    blocks: int
    rows: slice
    runs: Sequence[_Run]


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    norm_H: NDArray[np.float32]
    qkv: Linear
    out: Linear
    inner_norm_H: NDArray[np.float32]
    gate_up: Linear
    down: Linear


class Network:
    """Compute what tokens lead to.

    Args:
        shape: What the model is.
        tensors: Its weights.
        rows: Of a tile.
    """

    def __init__(self, shape: Shape, tensors: Tensors, *, rows: int = ROWS) -> None:
        self._shape = shape
        self._group = shape.heads // shape.kv_heads
        self._queries = queries_of(shape)
        self._embedding_VH = tensors[EMBEDDING]
        self._norm_H = tensors["model.norm.weight"]
        self._layers = [_layer(tensors, f"model.layers.{index}.", rows) for index in range(shape.layers)]
        self._head = Linear(tensors[EMBEDDING if shape.tied else HEAD], rows=rows)
        self._cos_TD, self._sin_TD = _angles(shape)
        self._ahead = np.where(np.tri(BLOCK, dtype=bool), np.float32(0), np.float32(-np.inf))[:, None, None]

    def forward(self, parts: Sequence[Part]) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """Compute tokens, and keep their keys and values.

        Args:
            parts: What to compute; no conversation twice.

        Returns:
            float32 [T, H], what the tokens lead to, and for each part the row of its last token, [N]; the tokens of a
            single part stand in order.
        """
        groups, last_N = _lay_out(parts, self._shape.heads)
        runs = [run for group in groups for run in group.runs]
        count = runs[-1].rows.stop
        places_T = np.concatenate([np.arange(run.start, run.stop) for run in runs])
        ids_T = np.concatenate([run.kept.expected(run.start, run.stop) for run in runs])
        x_TH = np.zeros((-(-count // ROWS) * ROWS, self._shape.hidden_size), np.float32)
        x_TH[:count] = self._embedding_VH[ids_T]
        with np.errstate(all="ignore"):  # what is no number is found in the logits
            for index, layer in enumerate(self._layers):
                qkv_TN = layer.qkv(self._normed(x_TH, layer.norm_H))
                x_TH += layer.out(self._attend(index, qkv_TN, groups, places_T))
                x_TH += layer.down(_gated(layer.gate_up(self._normed(x_TH, layer.inner_norm_H))))
        for part in parts:
            part.kept.length = part.stop
        return x_TH[:count], last_N

    def logits(self, hidden_TH: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return float32 [T, V] for rows of what `forward` returned."""
        with np.errstate(all="ignore"):
            return self._head(self._normed(hidden_TH, self._norm_H))

    def _normed(self, x_TH: NDArray[np.float32], weight_H: NDArray[np.float32]) -> NDArray[np.float32]:
        mean_T1 = np.square(x_TH).mean(-1, keepdims=True)
        normed: NDArray[np.float32] = x_TH * (1 / np.sqrt(mean_T1 + np.float32(self._shape.epsilon))) * weight_H
        return normed

    def _attend(
        self, layer: int, qkv_TN: NDArray[np.float32], groups: Sequence[_Group], places_T: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Return float32 [T, heads * D]; rows that fill the last tile are zero."""
        heads, kv_heads, width = self._shape.heads, self._shape.kv_heads, self._shape.head_size
        count = len(places_T)
        qkv = qkv_TN[:count].reshape(count, heads + 2 * kv_heads, width)
        turned = self._turned(qkv[:, : heads + kv_heads], places_T)
        queries = turned[:, :heads].reshape(count, kv_heads, self._group, width) * np.float32(width**-0.5)
        if self._queries > self._group:
            queries = np.repeat(queries, self._queries, axis=2)
        keys, values = turned[:, heads:].transpose(1, 2, 0), qkv[:, heads + kv_heads :].swapaxes(0, 1)
        for run in (run for group in groups for run in group.runs):
            block, first = divmod(run.start, BLOCK)
            inside = slice(first, first + run.stop - run.start)
            run.kept.keys[layer, :, block, :, inside] = keys[:, :, run.rows]
            run.kept.values[layer, :, block, inside] = values[:, run.rows]
        out = np.zeros((len(qkv_TN), kv_heads, self._queries, width), np.float32)
        for group in groups:
            first, blocks = group.rows.start, group.blocks
            weights = np.empty((group.rows.stop - first, kv_heads, self._queries, blocks * BLOCK), np.float32)
            scores = weights.reshape(*weights.shape[:-1], blocks, BLOCK).swapaxes(2, 3)
            local = [slice(run.rows.start - first, run.rows.stop - first) for run in group.runs]
            for run, rows in zip(group.runs, local, strict=True):
                np.matmul(queries[run.rows, :, None], run.kept.keys[layer, :, :blocks], out=scores[rows])
            weights[..., -BLOCK:] += self._ahead[places_T[group.rows] % BLOCK]
            weights -= weights.max(-1, keepdims=True)
            np.exp(weights, out=weights)
            for run, rows in zip(group.runs, local, strict=True):
                read = run.kept.values[layer, :, :blocks].reshape(kv_heads, blocks * BLOCK, width)
                np.matmul(weights[rows], read, out=out[run.rows])
            out[group.rows] /= weights.sum(-1, keepdims=True)
        return out[:, :, : self._group].reshape(len(qkv_TN), heads * width)

    def _turned(self, x_TND: NDArray[np.float32], places_T: NDArray[np.intp]) -> NDArray[np.float32]:
        """Turn queries and keys by the angles of their places, as "Roformer" does (https://arxiv.org/abs/2104.09864)."""
        cos, sin = self._cos_TD[places_T][:, None], self._sin_TD[places_T][:, None]
        half = x_TND.shape[-1] // 2
        first, second = x_TND[..., :half], x_TND[..., half:]
        turned = np.empty(x_TND.shape, np.float32)
        np.subtract(first * cos, second * sin, out=turned[..., :half])
        np.add(second * cos, first * sin, out=turned[..., half:])
        return turned


def queries_of(shape: Shape) -> int:
    """Return how many queries of a token meet one head's keys in a product.

    One alone is computed twice: it would go to another routine of the BLAS, which divides long sums among threads
    (OpenBLAS 0.3.31 does from 16,384 keys on, with four threads).
    """
    return max(2, shape.heads // shape.kv_heads)


def _layer(tensors: Tensors, name: str, rows: int) -> _Layer:
    def joined(*parts: str) -> NDArray[np.float32]:
        return np.concatenate([tensors[f"{name}{part}"] for part in parts])

    attention = [f"self_attn.{part}_proj" for part in "qkv"]
    return _Layer(
        norm_H=tensors[f"{name}input_layernorm.weight"],
        qkv=Linear(
            joined(*(f"{part}.weight" for part in attention)),
            joined(*(f"{part}.bias" for part in attention)),
            rows=rows,
        ),
        out=Linear(joined("self_attn.o_proj.weight"), rows=rows),
        inner_norm_H=tensors[f"{name}post_attention_layernorm.weight"],
        gate_up=Linear(joined("mlp.gate_proj.weight", "mlp.up_proj.weight"), rows=rows),
        down=Linear(joined("mlp.down_proj.weight"), rows=rows),
    )


def _angles(shape: Shape) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return cosines and sines of the angles of each place, float32 [context, D / 2]."""
    exponents_D = np.arange(0, shape.head_size, 2) / shape.head_size
    # Angles are rounded to float32 where transformers rounds them: far places turn often, and show the difference.
    speeds_D = (1 / shape.theta**exponents_D).astype(np.float32)
    angles_TD = (np.arange(shape.context, dtype=np.float32)[:, None] * speeds_D).astype(np.float64)
    return np.cos(angles_TD).astype(np.float32), np.sin(angles_TD).astype(np.float32)


def _gated(gate_up_TI: NDArray[np.float32]) -> NDArray[np.float32]:
    """Let the first half pass the second one, by the sigmoid-weighted linear unit."""
    gate_TI, up_TI = np.split(gate_up_TI, 2, axis=1)
    return np.asarray(gate_TI / (1 + np.exp(-gate_TI)) * up_TI, np.float32)


def _lay_out(parts: Sequence[Part], heads: int) -> tuple[list[_Group], NDArray[np.intp]]:
    """Put the tokens of a pass in order: by the keys that they attend to.

    Returns:
        The groups, and the row of each part's last token.
    """
    pieces: list[tuple[int, int, int, int]] = []
    for index, part in enumerate(parts):
        start = part.kept.length
        while start < part.stop:
            block = start // BLOCK
            stop = min(part.stop, (block + 1) * BLOCK)
            pieces.append((block, index, start, stop))
            start = stop
    pieces.sort()
    last_N = np.zeros(len(parts), np.intp)
    groups: list[_Group] = []
    row = 0
    for block, alike in groupby(pieces, key=itemgetter(0)):
        most = max(1, _SCORES // (heads * (block + 1) * BLOCK))
        first = row
        runs: list[_Run] = []
        for _, index, start, stop in alike:
            if row > first and row + stop - start - first > most:
                groups.append(_Group(block + 1, slice(first, row), runs))
                first, runs = row, []
            rows = slice(row, row + stop - start)
            runs.append(_Run(parts[index].kept, start, stop, rows))
            row = rows.stop
            last_N[index] = row - 1
        groups.append(_Group(block + 1, slice(first, row), runs))
    return groups, last_N
