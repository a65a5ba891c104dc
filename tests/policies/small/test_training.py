"""A run learns with a small model in numpy as its engine."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="the extra torch is not installed")

from agentgym_tok import Sampling
from agentgym_tok.learner.training.models import make_model
from agentgym_tok.learner.training.run_folder import RunFolder
from agentgym_tok.policies.small.policy import NumpyPolicy
from agentgym_tok.trace import TraceStore, verify

sys.path.insert(0, str(Path(__file__).parents[2] / "learner" / "training"))

import two_buttons


def run(folder: Path, batch_size: int) -> tuple[list[float], list[tuple[list[int], object]]]:
    """Return the largest gap between engine and learner at each step, and all that was drawn."""
    path = make_model(two_buttons.MODEL, two_buttons.CHAT, folder / "start")
    policy = NumpyPolicy(path, two_buttons.CHAT, batch_size=batch_size)
    config = two_buttons.changed(steps=3, sampling=Sampling(max_tokens=12, temperature=0.9))
    two_buttons.training(folder / "run", config, policy=policy).run()
    assert verify(folder / "run").ok
    with TraceStore(folder / "run", mode="r") as store:
        turns = [turn.completion for episode in store.episodes() for turn in episode.turns]
    gaps = [line["mismatch/max_gap"] for line in RunFolder(folder / "run").read_figures()]
    return gaps, sorted((turn.ids_T.tolist(), turn.weight_versions) for turn in turns)


def test_training_draws_the_same_in_any_batch_and_scores_what_was_drawn(tmp_path: Path) -> None:
    gaps, drawn = run(tmp_path / "wide", 64)
    assert len(gaps) == 3
    assert max(gaps) < 1e-4
    assert {version for _, versions in drawn for version, _, _ in versions} == {"0", "1", "2"}  # type: ignore[attr-defined]
    assert run(tmp_path / "narrow", 3)[1] == drawn
