"""The models of a run: new ones, by a name such as `new:qwen2?hidden=128&layers=2`, and the one that was trained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from pydantic import NonNegativeInt, PositiveInt
from safetensors.torch import save_file

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, unknown_name
from agentgym_tok.learner.training.copying import THETA, lay_copying_heads
from agentgym_tok.policies.options import checked_options, split_options

__all__ = ["is_new", "make_model", "save_model"]

_NEW = "new:"
_FILE = "config.json"


def is_new(model: str) -> bool:
    """Tell whether a name asks for a model that nobody has trained yet."""
    return model.startswith(_NEW)


def make_model(model: str, chat: ChatFormat, folder: Path) -> str:
    """Make a model's folder where its name asks for a new one.

    Args:
        model: A folder or name, which is returned as it is; or `new:qwen2?NAME=VALUE&...`, see `qwen2`.
        chat: The model has as many ids as it.
        folder: Where a new one is written; one that is there already is left.

    Returns:
        The folder or name of the model.

    Raises:
        UnknownName: There is no such kind of model, or it has no such option.
        ConfigError: The sizes do not go together.
    """
    if not is_new(model):
        return model
    name, options = split_options(model.removeprefix(_NEW))
    if name != "qwen2":
        raise unknown_name("kind of new model", name, ["qwen2"], where=f"model {model}")
    config = qwen2(chat, **checked_options(qwen2, options, f"model {_NEW}{name}"))
    if not (folder / _FILE).is_file():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.made_with_seed)
            made = transformers.Qwen2ForCausalLM(config)
            if config.made_copying:
                lay_copying_heads(made, config.made_copying, config.made_with_window)
        made.save_pretrained(folder)
    return str(folder)


def qwen2(
    chat: ChatFormat,
    *,
    hidden: PositiveInt = 128,
    layers: PositiveInt = 2,
    heads: PositiveInt = 4,
    kv_heads: PositiveInt = 2,
    head_size: PositiveInt | None = None,
    intermediate: PositiveInt | None = None,
    context: PositiveInt = 4096,
    copies: NonNegativeInt = 0,
    window: NonNegativeInt = 0,
    seed: NonNegativeInt = 0,
) -> "transformers.Qwen2Config":
    """Return the configuration of a small Qwen2 whose embedding is its head.

    Args:
        chat: The chat format.
        hidden: Width.
        layers: Number of layers.
        heads: Of attention.
        kv_heads: Heads of keys and values.
        head_size: Width of a head; an equal part of `hidden` without it.
        intermediate: Width inside a layer; three times `hidden` without it.
        context: Most ids of a sequence.
        copies: It begins with heads that copy by comparing so many tokens, see `lay_copying_heads`: for worlds whose
            names or numbers are new.
        window: Those heads also compare what stands around so many tokens back: for pages whose pieces are separated by
            the same tokens. 10 suits pieces of five to fifteen tokens, and heads of 64 have room for it.
        seed: What its weights are drawn by.

    Raises:
        ConfigError: The sizes do not go together.
    """
    size = hidden / heads if head_size is None else head_size
    if size % 2 or heads % kv_heads:
        raise ConfigError(
            "the sizes of a new model do not go together",
            where="model new:qwen2",
            got=f"hidden={hidden}, heads={heads} of {size:g}, kv_heads={kv_heads}",
            expected="heads of an even size, which without head_size divide hidden, and kv_heads that divide heads",
        )
    if window and not copies:
        raise ConfigError(
            "a window belongs to heads that copy",
            where="model new:qwen2, window",
            got=f"window={window}, copies=0",
            expected="copies of 1 or more beside a window",
        )
    return transformers.Qwen2Config(
        vocab_size=chat.vocab_size,
        hidden_size=hidden,
        intermediate_size=intermediate or 3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        **({} if head_size is None else {"head_dim": head_size}),
        max_position_embeddings=context,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": THETA if copies else 1e4},
        made_with_seed=seed,
        made_copying=copies,
        made_with_window=window,
    )


def save_model(model: Any, weights: Mapping[str, torch.Tensor], source: str, chat: ChatFormat, folder: Path) -> None:
    """Write a trained model as transformers reads it, with the tokenizer where it came with one.

    Args:
        model: The model of transformers, adapters inside or not.
        weights: All its weights by its own names, adapters merged.
        source: Folder or name of the model that training began with.
        chat: The chat format; the builtin one has no files.
        folder: Where to.
    """
    # Not by save_pretrained, which would write the names of adapters.
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    tied = {tensor.data_ptr(): name for name, tensor in reversed([*weights.items()])}
    kept = {name: weights[name].contiguous().cpu() for name in tied.values()}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    if chat.reference != "builtin":
        transformers.AutoTokenizer.from_pretrained(source).save_pretrained(folder)
