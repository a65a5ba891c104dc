"""`bench weights`: real steps change few values, and the receiver ends with exactly those that were sent."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from agentgym_tok import ChatFormat  # noqa: E402
from agentgym_tok.cli import bench_weights  # noqa: E402
from agentgym_tok.cli.main import main  # noqa: E402

CHAT = ChatFormat.builtin()
TINY = bench_weights.Options(rows=2, length=24)


@pytest.fixture(autouse=True)
def few_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_weights, "_EPISODES", 2)
    monkeypatch.setattr(bench_weights, "_WARM_UP", 3)


def test_batches_are_the_episodes_ids_one_after_the_other() -> None:
    batches = bench_weights._batches(CHAT, TINY)
    first, second = next(batches), next(batches)
    assert first.shape == second.shape == (2, 24)
    text = CHAT.decode(np.concatenate([first.numpy().ravel(), second.numpy().ravel()]).astype(np.int32))
    assert text.startswith("<|im_start|>")
    assert "household" in text.lower() or "room" in text.lower()


def test_a_higher_rate_changes_more_values_and_all_arrive() -> None:
    batches = bench_weights._batches(CHAT, TINY)
    low, high = (
        bench_weights.measure(bench_weights._model(None, CHAT), batches, rate, steps=1) for rate in (1e-6, 1e-4)
    )
    for figures in (low, high):
        assert figures["tensors equal at the end, %"] == 100
        assert figures["changed values a step, %"] > 0.1
    assert low["changed values a step, %"] < high["changed values a step, %"]
    assert low["change, bytes"] < high["change, bytes"] < 1.1 * high["whole weights, bytes"]


def test_the_command_shows_and_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model: Any = bench_weights._model(None, CHAT)
    file = tmp_path / "weights.json"
    options = ["--steps", "1", "--rows", "1", "--length", "16", "--learning-rates", "1e-5", "--out", str(file)]
    assert main(["bench", "weights", *options]) == 0
    assert "changed values a step, %" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert list(written["figures"]) == ["learning rate 1e-05"]
    assert written["weights"] == sum(tensor.numel() for tensor in model.parameters())
