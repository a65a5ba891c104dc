"""A new model that copies before it has learned anything: two heads of attention, laid by hand.

What stands once in a context - a name, a number, an id of a product - can only be copied by a model that never saw it.
Small models find out how very late: the heads that do it (induction heads, Olsson et al. 2022) are worth nothing one
by one, so that no gradient leads to the first. Here both are there from the start, and training bends them.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from agentgym_tok.errors import ConfigError

__all__ = ["THETA", "lay_copying_heads"]

THETA = 1e6
"""Base of the rotary positions, that of Qwen2.5: with it half of a head's places hardly turn within 1,000 tokens."""

_STILL = 1.01e-3
"""Radians a token; what turns no faster can compare ids wherever they stand."""
_SPREAD = 0.1
"""Of the embedding: five times that of other new models, so that a copy is heard among 4,096 ids."""
_BIAS = 10.0
"""So large that the token just before gets all of the first head's attention."""
_NOTE = 1.15
_MATCH = 4.0
_LOUD = 8.0
"""How loud the note about the token before, the comparison, and the copy are: 9 of 10 random ids come out right."""


@torch.no_grad()
def lay_copying_heads(model: Qwen2ForCausalLM) -> None:
    """Write the two heads into a new model; what they are made of is drawn by torch's generator.

    In layer 0 the first head looks at the token before, and notes which one it is in places of the residual stream
    that the embedding leaves free. In layer 1 the first head looks for the place whose note is the present token, and
    says the token that stands there. Heads that share keys with these two begin silent.

    Args:
        model: With rotary positions of base `THETA`.

    Raises:
        ConfigError: It has one layer, or is less than three heads wide.
    """
    config = model.config
    width, size = config.hidden_size, config.hidden_size // config.num_attention_heads
    if config.num_hidden_layers < 2 or width < 3 * size:
        raise ConfigError(
            "two heads that copy do not fit into this model",
            where="model new:qwen2, copies",
            got=f"layers={config.num_hidden_layers}, heads={config.num_attention_heads}",
            expected="layers of 2 or more, and heads of 3 or more",
        )
    free = width - size  # the embedding's own places; the last ones hold notes
    embedding = model.model.embed_tokens.weight
    embedding.normal_(0, _SPREAD)
    embedding[:, free:] = 0
    group = size * config.num_attention_heads // config.num_key_value_heads
    first, second = (layer.self_attn for layer in model.model.layers[:2])

    # Constant queries and keys, a turn of one token apart: whatever the tokens are, the one before scores highest.
    turn = THETA ** -(torch.arange(size // 2) / (size // 2))
    _silence(first, size)
    first.k_proj.bias[:size] = _BIAS * torch.cat([torch.ones_like(turn), torch.zeros_like(turn)])
    first.q_proj.bias[:size] = _BIAS * torch.cat([turn.cos(), -turn.sin()])
    name = _directions(size, free, width)
    first.v_proj.weight[:size] = name
    first.o_proj.weight[:, :group] = 0
    first.o_proj.weight[free:, :size] = torch.eye(size) * _SPREAD * _NOTE

    _silence(second, size)
    still = torch.nonzero(turn <= _STILL).flatten()
    still = torch.cat([still, still + size // 2])
    second.q_proj.weight[still] = name[: len(still)] * _MATCH
    second.k_proj.weight[still, free + torch.arange(len(still))] = _MATCH
    said = _directions(size, free, width)
    second.v_proj.weight[:size] = said
    second.o_proj.weight[:, :group] = 0
    second.o_proj.weight[:, :size] = said.T * _SPREAD * _LOUD


def _silence(attention: Any, size: int) -> None:
    """Let the first head begin with nothing."""
    for part in (attention.q_proj, attention.k_proj):
        part.weight[:size] = 0
        part.bias[:size] = 0


def _directions(count: int, free: int, width: int) -> Tensor:
    """Return so many orthogonal directions among the embedding's own places, [count, width]."""
    found = torch.zeros(count, width)
    found[:, :free] = torch.linalg.qr(torch.randn(free, count))[0].T
    return found
