"""A new model is that of its name and seed, and a trained one is read by transformers as it was."""

from pathlib import Path

import pytest
import torch
import transformers
from two_buttons import CHAT, MODEL

from agentgym_tok.errors import AgentGymTokError, ConfigError, UnknownName
from agentgym_tok.learner.losses import OBJECTIVES
from agentgym_tok.learner.torch_learner import LoraConfig, TorchConfig, TorchLearner
from agentgym_tok.learner.training.models import make_model, save_model


def test_equal_names_make_equal_models_and_seeds_make_others(tmp_path: Path) -> None:
    def weights(name: str, model: str) -> torch.Tensor:
        path = make_model(model, CHAT, tmp_path / name)
        found: torch.Tensor = transformers.AutoModelForCausalLM.from_pretrained(path).model.embed_tokens.weight
        return found

    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert torch.equal(weights("a", MODEL), weights("b", MODEL))
    assert not torch.equal(weights("a", MODEL), weights("c", f"{MODEL}&seed=1"))
    assert torch.equal(torch.get_rng_state(), before)
    assert weights("a", MODEL).shape == (CHAT.vocab_size, 32)


def test_a_model_that_is_there_is_left(tmp_path: Path) -> None:
    assert make_model("some/model", CHAT, tmp_path / "none") == "some/model"
    path = Path(make_model(MODEL, CHAT, tmp_path / "a"))
    stamp = (path / "model.safetensors").stat().st_mtime_ns
    assert make_model(MODEL, CHAT, tmp_path / "a") == str(path)
    assert (path / "model.safetensors").stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        ("new:gpt5", UnknownName, "unknown kind of new model.*expected: qwen2"),
        ("new:qwen2?width=3", UnknownName, "unknown option.*hidden"),
        ("new:qwen2?hidden=big", ConfigError, "got: big"),
        ("new:qwen2?hidden=30&heads=4", ConfigError, "do not go together.*got: hidden=30, heads=4"),
    ],
)
def test_an_impossible_model_is_refused(tmp_path: Path, model: str, error: type[AgentGymTokError], said: str) -> None:
    with pytest.raises(error, match=said):
        make_model(model, CHAT, tmp_path / "a")


@pytest.mark.parametrize("adapted", [False, True])
def test_a_saved_model_computes_what_the_trained_one_does(tmp_path: Path, adapted: bool) -> None:
    if adapted:
        pytest.importorskip("peft", reason="the extra lora is not installed")
    source = make_model(MODEL, CHAT, tmp_path / "start")
    config = TorchConfig(device="cpu", lora=LoraConfig(rank=2) if adapted else None)
    learner = TorchLearner(source, CHAT, OBJECTIVES["sft"], config)
    with torch.no_grad():
        for value in learner.model.parameters():
            if value.requires_grad:
                value.add_(0.05)
    save_model(learner.model, learner.weights(), source, CHAT, tmp_path / "model")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ids = torch.arange(40)[None]
    with torch.no_grad():
        assert torch.allclose(again(ids).logits, learner.model(ids).logits, atol=1e-5)
