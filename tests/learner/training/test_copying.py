"""A new model that copies says random ids again before it was trained, and another one does not."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from two_buttons import CHAT

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.training.models import make_model
from agentgym_tok.policies import load_policy
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import Sampling, ScoreRequest

MODEL = "new:qwen2?hidden=128&layers=4&context=1024"


def sequences(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids [N, T] of which three pieces are said again, and the places that foresee them."""
    pieces = [(30, 60), (120, 150), (300, 340)]
    draw = np.random.default_rng(0)
    rows, places = [], []
    for _ in range(count):
        source = draw.permutation(CHAT.vocab_size)[:400]
        rows.append(np.concatenate([source, *(source[start:end] for start, end in pieces)]))
    length = 400
    for start, end in pieces:
        places += range(length, length + end - start - 1)
        length += end - start
    return torch.from_numpy(np.array(rows)), torch.tensor(places)


@torch.no_grad()
def copied(model: str) -> float:
    """Return how many of the ids that are said again a model would say."""
    ids_N_T, places = sequences()
    logits = transformers.AutoModelForCausalLM.from_pretrained(model)(ids_N_T).logits
    return float((logits.argmax(-1)[:, places] == ids_N_T[:, places + 1]).float().mean())


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_copies_what_it_never_saw(copies: int, seed: int, tmp_path: Path) -> None:
    assert copied(make_model(f"{MODEL}&copies={copies}&seed={seed}", CHAT, tmp_path)) > 0.8


@torch.no_grad()
def spelled(model: str) -> float:
    """Return how many letters a model would say again of names, each one of ten that are spelled letter by letter."""
    letters = CHAT.encode("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    draw = np.random.default_rng(0)
    names = [draw.choice(letters, 10) for _ in range(10)]
    gaps = [draw.choice(CHAT.vocab_size, 8) for _ in names]
    page = np.concatenate([part for pair in zip(names, gaps, strict=True) for part in pair])
    ids_N_T = torch.from_numpy(np.array([np.concatenate([page, name]) for name in names]))
    logits = transformers.AutoModelForCausalLM.from_pretrained(model)(ids_N_T).logits
    return float((logits.argmax(-1)[:, -9:-1] == ids_N_T[:, -8:]).float().mean())


def test_names_spelled_in_letters_need_two_tokens_compared(tmp_path: Path) -> None:
    one, two = (spelled(make_model(f"{MODEL}&copies={copies}", CHAT, tmp_path / str(copies))) for copies in (1, 2))
    assert one < 0.5
    assert two > 0.8


@torch.no_grad()
def continued(model: str) -> float:
    """Return how often a model goes on with the next piece, behind a separator that stands between all pieces."""
    draw = np.random.default_rng(0)
    separator, lead = draw.choice(CHAT.vocab_size, 4, replace=False), draw.choice(CHAT.vocab_size, 1)
    page = [draw.choice(CHAT.vocab_size, 8) for _ in range(12)]
    rows, following = [], []
    for place in range(2, 10):
        parts = [part for piece in page for part in (piece, separator)]
        rows.append(np.concatenate([*parts, lead, page[place], separator]))
        following.append(page[place + 1][0])
    logits = transformers.AutoModelForCausalLM.from_pretrained(model)(torch.from_numpy(np.array(rows))).logits
    return float((logits[:, -1].argmax(-1).numpy() == np.array(following)).mean())


def test_what_follows_a_separator_needs_a_window(tmp_path: Path) -> None:
    model = f"{MODEL}&head_size=64&copies=2"
    without, window = (continued(make_model(f"{model}&window={at}", CHAT, tmp_path / str(at))) for at in (0, 8))
    assert without < 0.4
    assert window > 0.7


def test_another_new_model_does_not(tmp_path: Path) -> None:
    assert copied(make_model(MODEL, CHAT, tmp_path)) < 0.01


@pytest.mark.parametrize(
    "other",
    [
        "hidden=256&layers=3&kv_heads=1",
        "hidden=192&layers=2&heads=6&kv_heads=6",
        "copies=2&heads=2",
        "copies=3&head_size=64",
        "copies=2&head_size=64&window=10",
    ],
)
def test_other_sizes_copy_too(other: str, tmp_path: Path) -> None:
    options = dict(pair.split("=") for pair in f"hidden=128&context=1024&copies=1&{other}".split("&"))
    model = "new:qwen2?" + "&".join(f"{name}={value}" for name, value in options.items())
    assert copied(make_model(model, CHAT, tmp_path)) > 0.7


@torch.no_grad()
def test_the_present_token_counts_more_than_the_one_before(tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        make_model(f"{MODEL}&copies=2&head_size=64", CHAT, tmp_path)
    )
    draw, hits = np.random.default_rng(0), 0
    for _ in range(20):
        first, second, third, fourth, *rest = draw.permutation(CHAT.vocab_size)[:300]
        # `second` was followed by `third`, and what followed `first` was followed by `fourth`: now they meet.
        ids_T = [*rest[:90], second, third, *rest[90:180], first, rest[180], fourth, *rest[181:], first, second]
        logits = model(torch.tensor([ids_T])).logits[0, -1]
        hits += bool(logits[third] > logits[fourth])
    assert hits >= 18


@pytest.mark.parametrize("sizes", ["copies=1", "copies=2&heads=3&kv_heads=1&head_size=64&window=10"])
def test_the_small_engine_computes_what_transformers_does(sizes: str, tmp_path: Path) -> None:
    model = make_model(f"{MODEL}&{sizes}", CHAT, tmp_path)
    ids_N_T, _ = sequences(1)
    ids_T = as_ids(ids_N_T[0].numpy())
    request = ScoreRequest(ids_T, ((400, len(ids_T), Sampling()),))
    ours, theirs = (load_policy(f"{kind}:{model}", CHAT).score([request])[0].raw_S for kind in ("numpy", "hf"))
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


@pytest.mark.parametrize(
    "sizes",
    ["layers=1", "heads=16&kv_heads=1", "copies=4", "copies=3&heads=2", "copies=1&window=10&heads=1&kv_heads=1"],
)
def test_a_model_without_room_for_the_heads_is_refused(sizes: str, tmp_path: Path) -> None:
    options = dict(pair.split("=") for pair in f"hidden=128&copies=1&{sizes}".split("&"))
    model = "new:qwen2?" + "&".join(f"{name}={value}" for name, value in options.items())
    with pytest.raises(ConfigError, match="do not fit"):
        make_model(model, CHAT, tmp_path)


def test_a_window_without_copies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="belongs to heads that copy"):
        make_model(f"{MODEL}&window=10", CHAT, tmp_path)
