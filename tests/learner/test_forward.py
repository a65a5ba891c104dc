"""A packed forward pass equals the model's own, or is not taken."""

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from agentgym_tok.learner import tree_attention  # noqa: E402
from agentgym_tok.learner.forward import Forward  # noqa: E402
from agentgym_tok.learner.packing import Asked  # noqa: E402
from agentgym_tok.tokens import as_ids  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {
    "vocab_size": 50,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BLOOM = {"vocab_size": 50, "hidden_size": 32, "n_layer": 2, "n_head": 2}
MAMBA = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1}

PACKED = {
    "Qwen2": SIZES,
    "Qwen3": SIZES | {"head_dim": 8},
    "Llama": SIZES,
    "SmolLM3": SIZES,
    "Mistral": SIZES | {"sliding_window": 3},
    "Gemma3": SIZES | {"head_dim": 8, "sliding_window": 3},  # scales attention scores in its own way
    "GPT2": GPT2,
}
PLAIN = {
    "Gemma2": SIZES | {"head_dim": 8},  # caps attention scores
    "Cohere": SIZES,  # scales logits behind the head
    "Bloom": BLOOM,  # has no position ids
    "Mamba": MAMBA,  # has no attention
}


def make(name: str) -> Any:
    sizes = (PACKED | PLAIN)[name]
    config = getattr(transformers, f"{name}{'Text' if name == 'Gemma3' else ''}Config")(**sizes)
    kind = "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    torch.manual_seed(0)
    return getattr(transformers, kind)(config).eval()


def sequences(seed: int, lengths: list[tuple[int, int]]) -> list[Asked]:
    """Return sequences that begin with so many ids of a stem, and go on with so many of their own."""
    draw = np.random.default_rng(seed)
    stem = draw.integers(50, size=12)
    whole = [np.concatenate([stem[:shared], draw.integers(50, size=own)]) for shared, own in lengths]
    return [Asked(as_ids(ids), np.flatnonzero(draw.random(len(ids)) < 0.8)) for ids in whole]


def own_logits(model: Any, asked: list[Asked]) -> Any:
    """Return what the model says of each sequence alone."""
    found = [
        model(input_ids=torch.tensor(one.ids_T[None].astype(np.int64))).logits[0][one.predictors_K] for one in asked
    ]
    return torch.cat(found)


@pytest.mark.parametrize("name", PACKED)
@settings(max_examples=8)
@given(
    seed=st.integers(0, 99),
    lengths=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=6),
    block=st.sampled_from((1, 3, 256)),
)
def test_packed_logits_and_gradients_are_those_of_each_sequence_alone(
    name: str, seed: int, lengths: list[tuple[int, int]], block: int
) -> None:
    model = make(name).double()
    asked = sequences(seed, lengths)
    expected = own_logits(model, asked)
    direction = torch.from_numpy(np.random.default_rng(seed).normal(size=expected.shape))
    gradients = torch.autograd.grad(expected, list(model.parameters()), direction, allow_unused=True)
    forward = Forward(model, vocab_size=50)
    assert forward.packed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_attention, "_BLOCK", block)
        logits = forward.logits(forward.features(asked))
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
        packed = torch.autograd.grad(logits, list(model.parameters()), direction, allow_unused=True)
    for found, wanted in zip(packed, gradients, strict=True):
        # The norms of these models compute in float32, whatever they are given.
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PLAIN)
def test_a_model_that_cannot_be_packed_is_computed_row_by_row_and_says_so(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(name)
    asked = sequences(0, [(12, 3), (12, 4), (5, 1)])
    expected = own_logits(model, asked)
    with caplog.at_level(logging.WARNING):
        forward = Forward(model, vocab_size=50)
    assert not forward.packed
    assert "is computed row by row: " in caplog.text
    torch.testing.assert_close(forward.logits(forward.features(asked)), expected)


def test_a_shared_prefix_is_computed_once() -> None:
    forward = Forward(make("Qwen2"), vocab_size=50)
    before = forward.computed_tokens
    ids = as_ids(list(range(30)))
    forward.features([Asked(as_ids([*ids[:28], own]), np.array([28])) for own in (40, 41, 42)])
    assert forward.computed_tokens - before == 28 + 3


def test_an_ordinary_forward_pass_of_the_same_model_stays_what_it_was() -> None:
    model = make("Qwen2").double()
    ids = torch.arange(24).reshape(2, 12)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    before = model(input_ids=ids, attention_mask=mask).logits
    assert Forward(model, vocab_size=50).packed
    after = model(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(after[:, 5:], before[:, 5:], rtol=0, atol=1e-12)


def test_ids_that_the_chat_format_does_not_have_get_no_probability() -> None:
    forward = Forward(make("Qwen2"), vocab_size=40)
    assert forward.logits(forward.features(sequences(0, [(3, 4)]))).shape[1] == 40


def test_autocast_computes_in_bfloat16() -> None:
    forward = Forward(make("Qwen2"), vocab_size=50, autocast=True)
    assert forward.packed
    assert forward.logits(forward.features(sequences(0, [(3, 4)]))).dtype == torch.bfloat16
