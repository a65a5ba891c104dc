"""What a model's `config.json` says: the sizes of a Qwen2, and the tensors that it must have."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat, PositiveInt, ValidationError

from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing

__all__ = ["EMBEDDING", "HEAD", "Shape", "read_shape"]

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

_ARCHITECTURE = "Qwen2ForCausalLM"


class Shape(Config):
    """Hold the sizes of a Qwen2.

    Args:
        vocab_size: Rows of the embedding, V.
        hidden_size: Width, H.
        intermediate_size: Width inside a layer.
        layers: How many.
        heads: Of attention.
        kv_heads: Heads of keys and values, each shared by an equal number of the others.
        head_size: Width of a head, D.
        context: Most ids of a sequence.
        theta: Base of the rotary angles.
        epsilon: Of the norms.
        tied: The embedding is the head, too.
    """

    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_size: PositiveInt
    context: PositiveInt
    theta: PositiveFloat
    epsilon: PositiveFloat
    tied: bool

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name and the shape of each tensor; a tied head is none."""
        hidden, inner = self.hidden_size, self.intermediate_size
        yield EMBEDDING, (self.vocab_size, hidden)
        for index in range(self.layers):
            layer = f"model.layers.{index}."
            for name, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
                yield f"{layer}self_attn.{name}_proj.weight", (heads * self.head_size, hidden)
                yield f"{layer}self_attn.{name}_proj.bias", (heads * self.head_size,)
            yield f"{layer}self_attn.o_proj.weight", (hidden, self.heads * self.head_size)
            yield f"{layer}mlp.gate_proj.weight", (inner, hidden)
            yield f"{layer}mlp.up_proj.weight", (inner, hidden)
            yield f"{layer}mlp.down_proj.weight", (hidden, inner)
            yield f"{layer}input_layernorm.weight", (hidden,)
            yield f"{layer}post_attention_layernorm.weight", (hidden,)
        yield "model.norm.weight", (hidden,)
        if not self.tied:
            yield HEAD, (self.vocab_size, hidden)

    def products(self) -> set[tuple[int, int]]:
        """Return the shapes [N, K] of the weights that rows are multiplied by, those that are joined as one."""
        hidden, inner, queries = self.hidden_size, self.intermediate_size, self.heads * self.head_size
        joined = queries + 2 * self.kv_heads * self.head_size
        return {(joined, hidden), (hidden, queries), (2 * inner, hidden), (hidden, inner), (self.vocab_size, hidden)}


def read_shape(folder: Path) -> Shape:
    """Read the sizes of a model.

    Args:
        folder: Holds a `config.json` as transformers writes it.

    Raises:
        DataMissing: There is none.
        DataCorrupt: It is no configuration, or one whose sizes do not go together.
        ConfigError: It is of another kind of model.
    """
    file = folder / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise DataMissing(
            "no model could be loaded",
            where=str(folder),
            got=f"{file.name}: {error.strerror}",
            expected="a folder with config.json and model.safetensors",
        ) from error
    except ValueError as error:
        raise DataCorrupt("a model's configuration cannot be read", where=str(file), got=str(error)) from error
    try:
        _check_kind(config, file)
        shape = _shape(config)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError, ValidationError) as error:
        got = f"{type(error).__name__}: {error}"
        raise DataCorrupt("a model's configuration is not whole", where=str(file), got=got) from error
    if shape.heads % shape.kv_heads or shape.head_size % 2:
        got = f"{shape.heads} heads of {shape.head_size}, {shape.kv_heads} of keys"
        raise DataCorrupt("the sizes of a model do not go together", where=str(file), got=got)
    return shape


def _check_kind(config: Mapping[str, Any], file: Path) -> None:
    """Refuse what is computed in another way than a Qwen2 with full attention."""
    rope = _rope(config)
    found = {
        "architectures": (config.get("architectures") or [None])[0],
        "hidden_act": config.get("hidden_act", "silu"),
        "rope_type": rope.get("rope_type", rope.get("type", "default")),
        "use_sliding_window": bool(config.get("use_sliding_window")),
        "quantization_config": config.get("quantization_config"),
    }
    known = {
        "architectures": _ARCHITECTURE,
        "hidden_act": "silu",
        "rope_type": "default",
        "use_sliding_window": False,
        "quantization_config": None,
    }
    for name, value in found.items():
        if value != known[name]:
            raise ConfigError(
                "numpy computes no such model",
                where=f"{file}: {name}",
                got=value or "none",
                expected=known[name],
                fix="load it by hf:PATH",
            )


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    # transformers 5 has one group of parameters; 4 has the base apart, and a scaling.
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _shape(config: Mapping[str, Any]) -> Shape:
    heads = config["num_attention_heads"]
    return Shape(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config["num_key_value_heads"],
        head_size=config.get("head_dim") or config["hidden_size"] // heads,
        context=config["max_position_embeddings"],
        theta=_rope(config).get("rope_theta", config.get("rope_theta", 10_000.0)),
        epsilon=config["rms_norm_eps"],
        tied=config["tie_word_embeddings"],
    )
