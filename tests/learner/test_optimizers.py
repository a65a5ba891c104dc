"""Muon turns the matrices inside a model, AdamW steps the rest, and both go on from where they were saved."""

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

sys.path.insert(0, str(Path(__file__).parent))

from row_groups import VOCAB, make_group  # noqa: E402

from agentgym_tok import ChatFormat  # noqa: E402
from agentgym_tok.learner import Batch  # noqa: E402
from agentgym_tok.learner.losses import OBJECTIVES  # noqa: E402
from agentgym_tok.learner.torch_learner import TorchConfig, TorchLearner  # noqa: E402

CHAT = ChatFormat.builtin()
RATE = 1e-2


def qwen2(*, tied: bool = True) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=tied,
    )
    return transformers.Qwen2ForCausalLM(config).eval()


def learner(model: Any, optimizer: str = "muon") -> TorchLearner:
    options = {"device": "cpu", "learning_rate": RATE, "weight_decay": 0.0, "optimizer": optimizer}
    return TorchLearner(model, CHAT, OBJECTIVES["ppo"], TorchConfig(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("tied", [True, False])
def test_matrices_inside_turn_and_the_rest_steps_as_adamw(tied: bool) -> None:
    before = {name: value.clone() for name, value in qwen2(tied=tied).named_parameters()}
    found = {}
    for optimizer in ("muon", "adamw"):
        model = qwen2(tied=tied)
        learner(model, optimizer).update(Batch(make_group()))
        found[optimizer] = {name: value.detach() - before[name] for name, value in model.named_parameters()}
    sloped = qwen2(tied=tied)
    learner(sloped).backward(Batch(make_group()))
    slopes = dict(sloped.named_parameters())
    inner = {name for name, value in before.items() if value.ndim == 2 and "layers" in name}
    assert len(inner) == 2 * 7
    for name, change in found["muon"].items():
        if name not in inner:
            torch.testing.assert_close(change, found["adamw"][name], rtol=0, atol=0)
            continue
        # All singular values are about one, however unequal those of the gradient are.
        left, values, right = torch.linalg.svd(slopes[name].grad)
        kept = int((values > values[0] / 50).sum())
        turned = left[:, :kept].T @ (change / (-0.2 * max(change.shape) ** 0.5 * RATE)) @ right[:kept].T
        assert values[0] > 5 * values[kept - 1]
        assert (turned.diagonal().min() > 0.5, turned.diagonal().max() < 1.4) == (True, True), name
        assert (turned - turned.diagonal().diag()).abs().max() < 0.1


def test_a_learner_goes_on_bit_for_bit() -> None:
    whole = learner(qwen2())
    for _ in range(2):
        whole.update(Batch(make_group()))
    begun = learner(qwen2())
    begun.update(Batch(make_group()))
    resumed = learner(qwen2())
    resumed.load_state(begun.state())
    resumed.update(Batch(make_group()))
    for mine, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
