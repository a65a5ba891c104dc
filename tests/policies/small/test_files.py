"""What is no small Qwen2 is refused, and the error says why."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_model

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing, FingerprintMismatch
from agentgym_tok.policies.small.policy import NumpyPolicy
from agentgym_tok.tokens import as_ids

CHAT = ChatFormat.builtin()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "architectures; got: LlamaForCausalLM; expected: Qwen2ForCausalLM"),
        ({"architectures": None}, "architectures; got: none"),
        ({"hidden_act": "gelu"}, "hidden_act; got: gelu"),
        ({"use_sliding_window": True}, "use_sliding_window; got: True"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type; got: yarn"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2}}, "rope_type; got: linear"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_other_models_are_named(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    random_model.write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(random_model.CONFIG | config), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"numpy computes no such model; where: .*{message}.*next: load it by hf:"):
        NumpyPolicy(tmp_path, CHAT)


def test_the_configuration_of_transformers_4_is_read(tmp_path: Path) -> None:
    old: dict[str, Any] = {"rope_parameters": None, "rope_theta": 5000.0, "rope_scaling": None}
    assert NumpyPolicy(random_model.write(tmp_path, **old), CHAT)._shape.theta == 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "not whole"),
        (json.dumps({**random_model.CONFIG, "hidden_size": 0}), "not whole"),
        (json.dumps({**random_model.CONFIG, "num_attention_heads": "four"}), "not whole"),
        (json.dumps({**random_model.CONFIG, "num_key_value_heads": 3}), "do not go together"),
    ],
)
def test_broken_configurations_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataCorrupt, match=message):
        NumpyPolicy(tmp_path, CHAT)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"no model could be loaded; .*config\.json"):
        NumpyPolicy(tmp_path / "nowhere", CHAT)
    (random_model.write(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(DataMissing, match=r"no \*.safetensors"):
        NumpyPolicy(tmp_path, CHAT)


def test_broken_weights_are_refused(tmp_path: Path) -> None:
    file = random_model.write(tmp_path) / "model.safetensors"
    whole = file.read_bytes()
    for data in (b"", whole[:100], whole[:-1], b"\xff" * 8 + whole[8:], whole.replace(b'"F32"', b'"I32"', 1)):
        file.write_bytes(data)
        with pytest.raises(DataCorrupt, match="weights cannot be read"):
            NumpyPolicy(tmp_path, CHAT)
    tensors = random_model.weights(tmp_path)
    norm = tensors.pop("model.norm.weight")
    for wrong, message in (
        (tensors, r"not whole; .*none for \['model.norm.weight'\]"),
        ({**tensors, "model.norm.weight": np.ones(3, np.float32)}, "another shape; where: .*model.norm.weight"),
        ({**tensors, "model.norm.weight": norm, "lora": norm}, r"no such tensors; .*\['lora'\]"),
    ):
        random_model.write_tensors(file, wrong)
        with pytest.raises(DataCorrupt, match=message):
            NumpyPolicy(tmp_path, CHAT)


def test_weights_in_several_files_are_joined(tmp_path: Path, folder: Path) -> None:
    tensors = list(random_model.weights(random_model.write(tmp_path)).items())
    (tmp_path / "model.safetensors").unlink()
    for number, part in enumerate((tensors[:5], tensors[5:]), start=1):
        random_model.write_tensors(tmp_path / f"model-0000{number}-of-00002.safetensors", dict(part))
    parted, whole = NumpyPolicy(tmp_path, CHAT)._tensors, NumpyPolicy(folder, CHAT)._tensors
    assert parted.keys() == whole.keys()
    assert all(np.array_equal(parted[name], whole[name]) for name in whole)


def test_foreign_vocabularies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not know"):
        NumpyPolicy(random_model.write(tmp_path / "small", vocab_size=10), CHAT)
    larger = random_model.write(tmp_path / "large", vocab_size=CHAT.vocab_size + 64)
    with pytest.raises(ConfigError, match="no tokenizer"):
        NumpyPolicy(larger, CHAT)
    rules = (resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json").read_text(encoding="utf-8")
    (larger / "tokenizer.json").write_text(rules, encoding="utf-8")
    (turn,) = NumpyPolicy(larger, CHAT).generate([Request(as_ids([1]), Sampling(max_tokens=60))])
    assert isinstance(turn, Completion)
    assert max(turn.ids_T) < CHAT.vocab_size  # rows behind the vocabulary are never drawn
    (larger / "tokenizer.json").write_text(rules.replace("<|im_end|>", "<|im_other|>"), encoding="utf-8")
    with pytest.raises(FingerprintMismatch, match="another vocabulary"):
        NumpyPolicy(larger, CHAT)
    (larger / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FingerprintMismatch, match="cannot be read"):
        NumpyPolicy(larger, CHAT)
