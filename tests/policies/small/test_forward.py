"""A small model in numpy computes what transformers computes, however its contexts are cut."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_tok.policies.small.forward import Network, Part
from agentgym_tok.policies.small.keys import Kept
from agentgym_tok.policies.small.shape import Shape, read_shape
from agentgym_tok.policies.small.tensors import read_tensors

SHAPES: list[dict[str, Any]] = [
    {},
    {"num_key_value_heads": 4, "tie_word_embeddings": False},
    {"num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
    {"hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 100, "vocab_size": 77},
    {"head_dim": 20, "num_hidden_layers": 3, "rms_norm_eps": 1e-3},
    {"hidden_size": 256, "num_attention_heads": 2, "intermediate_size": 520, "max_position_embeddings": 4096},
]


def load(folder: Path) -> tuple[Shape, Network]:
    shape = read_shape(folder)
    return shape, Network(shape, read_tensors(folder, shape))


def computed(shape: Shape, network: Network, ids_T: np.ndarray, cuts: list[int]) -> np.ndarray:
    """Return the logits of every id, computed in passes that end at some places."""
    kept = Kept(shape)
    kept.expect(ids_T)
    return np.concatenate([network.logits(network.forward([Part(kept, stop)])[0]) for stop in [*cuts, len(ids_T)]])


def ids_of(shape: Shape, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(shape.vocab_size, size=length).astype(np.int32)


def by_transformers(folder: Path, ids_T: np.ndarray) -> np.ndarray:
    torch, transformers = (pytest.importorskip(name, reason="no extra torch") for name in ("torch", "transformers"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits: np.ndarray = model(torch.from_numpy(ids_T.astype(np.int64))[None]).logits[0].numpy()
    return logits


@pytest.mark.parametrize("config", SHAPES)
def test_logits_are_those_of_transformers(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = random_model.write(tmp_path, **config)
    shape, network = load(folder)
    ids_T = ids_of(shape, 140)
    want = by_transformers(folder, ids_T)
    assert want.std() > 0.5
    for cuts in ([], [3, 64, 65, 130], [*range(50, 140)]):
        np.testing.assert_allclose(computed(shape, network, ids_T, cuts), want, atol=1e-4)


def test_far_places_are_turned_as_in_transformers(tmp_path: Path) -> None:
    folder = random_model.write(tmp_path, max_position_embeddings=16_384)
    shape, network = load(folder)
    ids_T = ids_of(shape, 2000)
    got = computed(shape, network, ids_T, [*range(500, 2000, 500)])
    np.testing.assert_allclose(got[-50:], by_transformers(folder, ids_T)[-50:], atol=1e-4)


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_weights_of_half_the_bytes_are_read(tmp_path: Path, dtype: str) -> None:
    folder = random_model.write(tmp_path, dtype=dtype)
    shape, network = load(folder)
    ids_T = ids_of(shape, 20)
    np.testing.assert_allclose(computed(shape, network, ids_T, []), by_transformers(folder, ids_T), atol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_what_transformers_writes_is_read(tmp_path: Path, save_qwen2: Callable[..., Path], *, tied: bool) -> None:
    folder = save_qwen2(tmp_path, tie_word_embeddings=tied)
    shape, network = load(folder)
    assert shape.tied is tied
    ids_T = ids_of(shape, 20)
    np.testing.assert_allclose(computed(shape, network, ids_T, []), by_transformers(folder, ids_T), atol=1e-5)


PIECES = st.dictionaries(st.integers(0, 2), st.integers(1, 90), min_size=1)
"""How many ids of which conversations a pass computes, in this order."""


@pytest.mark.parametrize("config", SHAPES)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(passes=st.lists(PIECES, max_size=9), lengths=st.lists(st.integers(1, 150), min_size=3, max_size=3))
def test_bits_do_not_depend_on_cuts_or_company(
    tmp_path: Path, config: dict[str, Any], passes: list[dict[int, int]], lengths: list[int]
) -> None:
    if not (tmp_path / "config.json").exists():
        random_model.write(tmp_path, **config)
    shape, network = load(tmp_path)
    several = [ids_of(shape, length, seed) for seed, length in enumerate(lengths)]
    want = [computed(shape, network, ids_T, []) for ids_T in several]
    conversations = [Kept(shape) for _ in several]
    for kept, ids_T in zip(conversations, several, strict=True):
        kept.expect(ids_T)
    for sizes in [*passes, dict.fromkeys(range(3), 150)]:
        stops = {place: min(conversations[place].length + size, lengths[place]) for place, size in sizes.items()}
        parts = [Part(kept, stop) for place, stop in stops.items() if (kept := conversations[place]).length < stop]
        if parts:
            hidden_TH, last_N = network.forward(parts)
            for part, logits_V in zip(parts, network.logits(hidden_TH[last_N]), strict=True):
                assert np.array_equal(logits_V, want[conversations.index(part.kept)][part.stop - 1])
    assert [kept.length for kept in conversations] == lengths
