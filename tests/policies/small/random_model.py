"""A random Qwen2 as files, by numpy alone: `config.json` and `model.safetensors`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agentgym_tok import ChatFormat
from agentgym_tok.policies.small.shape import read_shape

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": ChatFormat.builtin().vocab_size,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": True,
}


def weights(folder: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights for a configuration, of a size that keeps numbers as large as they are."""
    draw = np.random.default_rng(seed)
    tensors = {name: draw.normal(0, size[-1] ** -0.5, size) for name, size in read_shape(folder).tensors()}
    return {name: (1 + values if "norm" in name else values).astype(np.float32) for name, values in tensors.items()}


def write(folder: Path, *, seed: int = 0, dtype: str = "F32", **config: Any) -> Path:
    """Write a model, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config), encoding="utf-8")
    write_tensors(folder / "model.safetensors", weights(folder, seed), dtype)
    return folder


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray], dtype: str = "F32") -> None:
    """Write safetensors; values are cut to bfloat16 where that is asked for."""
    header, values, place = dict[str, Any](), list[bytes](), 0
    for name, tensor in tensors.items():
        if dtype == "BF16":
            data = (tensor.view(np.uint32) >> 16).astype("<u2").tobytes()
        else:
            data = tensor.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
        values.append(data)
    written = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    file.write_bytes(len(written).to_bytes(8, "little") + written + b"".join(values))
