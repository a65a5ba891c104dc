"""Rollouts on workers train what rollouts here do."""

import os
from pathlib import Path
from typing import Any

import pytest
from two_buttons import CHAT, TESTS, changed, training

from agentgym_tok.harness.scale import RayWorkers
from agentgym_tok.learner.torch_learner import TorchLearner
from agentgym_tok.policies.hf import HFPolicy
from agentgym_tok.trace import TraceStore, verify

pytestmark = pytest.mark.deep  # three processes with torch, 2 GB


def drawn(folder: Path) -> dict[Any, Any]:
    """Return what was drawn in each rollout and test, and by which weights."""
    with TraceStore(folder, mode="r") as store:
        return {
            (episode.group_id, episode.head.replica): [
                (turn.completion.ids_T.tolist(), turn.completion.weight_versions) for turn in episode.turns
            ]
            for episode in store.episodes()
        }


def test_a_run_on_workers_is_the_one_that_was_trained_here(
    tmp_path: Path, warm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")
    config = changed(steps=3, evaluation=TESTS)
    found = {}
    for name in ("here", "there"):
        there = name == "there"
        policy: Any = (
            RayWorkers(f"hf:{warm}?device=cpu&batch_size=1", CHAT)
            if there
            else HFPolicy(warm, CHAT, device="cpu", batch_size=1)
        )
        learner = TorchLearner(warm, CHAT, config.loss, config.learner)
        found[name] = training(tmp_path / name, config, policy=policy, learner=learner).run()
        if there:
            policy.close()
    ray.shutdown()
    assert drawn(tmp_path / "there") == drawn(tmp_path / "here")
    for figure in ("loss", "rollouts/success", "evaluation/success"):
        if figure in found["here"]:
            assert found["there"][figure] == pytest.approx(found["here"][figure], rel=1e-4)
    assert verify(tmp_path / "there").ok
    shards = {path.stem.partition(".")[0] for path in (tmp_path / "there" / "shards").glob("*.ray-*.sqlite")}
    assert shards == {"main", "evaluation"}
