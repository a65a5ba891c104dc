"""A new model that copies before it has learned anything: heads of attention that are laid by hand.

What stands once in a context - a name, a number, an id of a product - can only be copied by a model that never saw it.
Small models find out how very late: the heads that do it (induction heads, Olsson et al. 2022) are worth nothing one
by one, so that no gradient leads to the first. Here all are there from the start, and training bends them.
"""

import math
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from agentgym_tok.errors import ConfigError

__all__ = ["THETA", "lay_copying_heads"]

THETA = 1e10
"""Base of the rotary positions: with it two thirds of a head's places hardly turn within 1,000 tokens."""

_STILL = 1.01e-3
"""Radians a token; what turns no faster can compare ids wherever they stand."""
_SPREAD = 0.1
"""Of the embedding: five times that of other new models, so that a copy is heard among 4,096 ids."""
_BIAS = 10.0
"""So large that one token before gets all of a first head's attention."""
_NARROW = 32
_LEAST = 6
"""Fewest places of a head, and of a note: fewer tell no ids apart."""
_NOTE = 1.15
_MATCH = 4.0
_WEAKER = 0.4
_AROUND = 1.5
_LOUD = 8.0
"""How loud the notes about the tokens before, the comparison, and the copy are: 9 of 10 random ids come out right.

The present token counts more than those before it: where it stands behind another one than it ever did, it is still
found, and what follows the token before it is not."""
_TURNS = (0.02, 0.3)
_FOCUS = 24.0
"""Which rotary places a window is made of, in radians a token, and its height in nats: some four tokens to either side.
"""


@torch.no_grad()
def lay_copying_heads(model: Qwen2ForCausalLM, tokens: int, window: int = 0) -> None:
    """Write the heads into a new model; what they are made of is drawn by torch's generator.

    In layer 0 a head for each token that is compared looks at a token before - the last one, the one before that - and
    notes which one it is, in places of the residual stream that the embedding leaves free. In layer 1 one head looks
    for the place whose notes are the present token and those before it, and says the token that stands there: one score
    is the sum of all comparisons, so that what fits as a whole wins. Heads that share keys with these begin silent.

    A separator that stands between all pieces of a page agrees with each other one, whatever two tokens say. With a
    window one more head of layer 0 notes the mean of what stands around a place some tokens back, and that is compared
    too: where the last piece was found, the copy goes on with the next one.

    Args:
        model: With rotary positions of base `THETA`.
        tokens: How many tokens are compared: 1 where each stands once, 2 or more where a few of them stand for all, as
            letters and digits do.
        window: How many tokens back the middle of the window is; 0 for none.

    Raises:
        ConfigError: It has one layer, too few heads, or too little room for the notes.
    """
    config = model.config
    width, heads = config.hidden_size, config.num_attention_heads
    size = getattr(config, "head_dim", None) or width // heads
    turn = THETA ** -(torch.arange(size // 2) / (size // 2))
    still = torch.nonzero(turn <= _STILL).flatten()
    still = torch.cat([still, still + size // 2])
    laid = tokens + bool(window)
    note = len(still) // laid  # places of a note
    free = width - laid * note  # the embedding's own places; the last ones hold notes
    if config.num_hidden_layers < 2 or heads < max(laid, 2) or size < _NARROW or note < _LEAST or free < size:
        raise ConfigError(
            "heads that copy do not fit into this model",
            where="model new:qwen2, copies",
            got=f"copies={tokens}, window={window}, layers={config.num_hidden_layers}, heads={heads} of {size} places",
            expected="layers of 2 or more, a head of 32 places or more for each copy and the window, at least 2",
        )
    embedding = model.model.embed_tokens.weight
    embedding.normal_(0, _SPREAD)
    embedding[:, free:] = 0
    notes = [slice(free + place * note, free + (place + 1) * note) for place in range(laid)]
    name = _directions(note, free, width)
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    group = heads // config.num_key_value_heads

    # All heads that share keys with those that are laid, of which there are `laid` here, and one below.
    first.o_proj.weight[:, : -(-laid // group) * group * size] = 0
    second.o_proj.weight[:, : group * size] = 0
    for place, room in enumerate(notes):
        own = slice(place * size, (place + 1) * size)
        keys = slice(place // group * size, (place // group + 1) * size)
        _silence(first, own, keys)
        is_window = place == tokens
        # Constant queries and keys, some tokens' turn apart: whatever the tokens are, one place before scores highest.
        first.k_proj.bias[keys] = _BIAS * torch.cat([torch.ones_like(turn), torch.zeros_like(turn)])
        ahead = (window if is_window else place + 1) * turn
        loud = _focus(turn, size) if is_window else torch.full_like(turn, _BIAS)
        first.q_proj.bias[own] = torch.cat([loud * ahead.cos(), -loud * ahead.sin()])
        first.v_proj.weight[keys] = 0
        first.v_proj.weight[keys][:note] = name
        first.o_proj.weight[room, own.start : own.start + note] = (
            torch.eye(note) * _SPREAD * (_AROUND if is_window else _NOTE)
        )

    _silence(second, slice(size), slice(size))
    asked = [name, *(torch.eye(width)[room] for room in notes[: tokens - 1])]
    if window:
        # Two windows that are one token apart hold nearly the same.
        asked.append(torch.eye(width)[notes[tokens]])
    for place, room in enumerate(notes):
        compared = still[place * note : (place + 1) * note]
        second.q_proj.weight[compared] = asked[place] * (_WEAKER if 0 < place < tokens else 1) * _MATCH
        second.k_proj.weight[compared] = torch.eye(width)[room] * _MATCH
    said = _directions(size, free, width)
    second.v_proj.weight[:size] = said
    second.o_proj.weight[:, :size] = said.T * _SPREAD * _LOUD


def _focus(turn: Tensor, size: int) -> Tensor:
    """Return how loud the places of a query are that attends to a window, not to one token, [size / 2]."""
    slow, fast = _TURNS
    inside = (turn > slow) & (turn < fast)
    return inside.float() * (_FOCUS / float(inside.sum()) * math.sqrt(size) / _BIAS)


def _silence(attention: Any, own: slice, keys: slice) -> None:
    """Let a head begin with nothing."""
    for part, places in ((attention.q_proj, own), (attention.k_proj, keys)):
        part.weight[places] = 0
        part.bias[places] = 0


def _directions(count: int, free: int, width: int) -> Tensor:
    """Return so many orthogonal directions among the embedding's own places, [count, width]."""
    found = torch.zeros(count, width)
    found[:, :free] = torch.linalg.qr(torch.randn(free, count))[0].T
    return found
