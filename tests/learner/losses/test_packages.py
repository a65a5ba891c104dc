"""Losses and advantages equal those of TRL and verl on random batches.

`vectors/packages.json` holds what the packages computed, by `scripts/record_loss_vectors.py`; the deep test lets those
that can be imported compute other batches.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok.learner import discounted_returns, group_advantages, rloo, whiten  # noqa: E402
from agentgym_tok.learner.losses import Layout, LossConfig, Scores, total_loss  # noqa: E402

VECTORS = json.loads((Path(__file__).parent / "vectors" / "packages.json").read_text(encoding="utf-8"))
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "record_loss_vectors.py"
SCORES = {"logprobs_T": "logprobs", "old_T": "old", "reference_T": "reference", "rollout_T": "rollout"}


def loss_records(vectors: Any) -> list[Any]:
    return [
        pytest.param(one, vectors["batches"][str(one["seed"])], id=f"{package} {one['name']} {one['seed']}")
        for package, found in vectors["packages"].items()
        for one in found["losses"]
    ]


def advantage_records(vectors: Any) -> list[Any]:
    return vectors["packages"].get("verl", {}).get("advantages", [])


@pytest.mark.parametrize(("record", "batch"), loss_records(VECTORS))
def test_a_loss_is_that_of_the_package_without_its_padding(record: Any, batch: Any) -> None:
    mask = np.array(batch["mask"])
    # Row by row up to the last trained token: what was padding is gone, what the world said is not.
    real = np.cumsum(mask[:, ::-1], axis=1)[:, ::-1] > 0
    row_T = torch.from_numpy(np.nonzero(real)[0])
    layout = Layout(torch.from_numpy(mask[real]), row_T, torch.ones(len(mask), dtype=torch.float64))
    scores = {ours: torch.tensor(np.array(batch[theirs])[real]) for ours, theirs in SCORES.items()}
    scores["logprobs_T"].requires_grad_()
    advantage_T = torch.tensor(batch["advantages"], dtype=torch.float64)[row_T]
    loss, _ = total_loss(
        Scores(layout, layout.totals(), advantage_T=advantage_T, **scores),
        LossConfig.model_validate(record["config"]),
    )
    loss.backward()
    assert scores["logprobs_T"].grad is not None
    # verl adds 1e-8 to the number of tokens where it takes the mean of each row.
    exact: Any = {
        "rtol": 1e-10,
        "atol": 1e-7 if record["config"].get("aggregation") == "seq-mean-token-mean" else 1e-12,
    }
    assert np.allclose(loss.item(), record["loss"], **exact)
    gradient = np.array(record["gradient"])
    assert np.allclose(scores["logprobs_T"].grad, gradient[real], **exact)
    assert not gradient[~mask].any()


@pytest.mark.parametrize(
    "record", advantage_records(VECTORS), ids=lambda record: f"{record['name']} {record['options']}"
)
def test_advantages_are_those_of_verl(record: Any) -> None:
    mask, rewards, group = (np.array(record[part]) for part in ("mask", "rewards", "group"))
    returns, name = rewards.sum(-1), record["name"]
    if name == "grpo":
        scale: Any = "group" if record["options"].get("norm_adv_by_std_in_grpo", True) else "none"
        found = group_advantages(returns, group, scale=scale, lone="return")[:, None] * mask
    elif name == "rloo":
        found = rloo(returns, group, lone="return")[:, None] * mask
    elif name == "reinforce_plus_plus_baseline":
        less = group_advantages(returns, group, scale="none", lone="return")
        found = whiten(less, mask.sum(-1))[:, None] * mask
    else:
        to_come = [discounted_returns(*pair, gamma=record["gamma"]) for pair in zip(rewards, mask, strict=True)]
        found = whiten(np.ravel(to_come), mask.ravel()).reshape(mask.shape)
    assert np.allclose(found, record["advantages"], rtol=1e-5, atol=1e-6)  # the means of verl are float32


def test_the_record_names_all_that_the_project_promises() -> None:
    packages = VECTORS["packages"]
    assert packages["trl"]["version"] == "1.16.0"
    assert packages["verl"]["version"].startswith("0.9.")
    assert {"dapo", "grpo", "dr_grpo", "cispo"} <= {one["name"] for one in packages["trl"]["losses"]}


@pytest.mark.deep
def test_the_packages_agree_side_by_side(tmp_path: Path) -> None:
    path = [os.environ.get("PYTHONPATH", "")]
    if templates := os.environ.get("AGENTGYM_TOK_TRL"):  # TRL lies unpacked around its chat templates
        path.append(str(Path(templates).parents[1]))
    out = tmp_path / "packages.json"
    seeds = [str(seed) for seed in range(100, 110)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--seeds", *seeds]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    fresh = json.loads(out.read_text(encoding="utf-8"))
    if not fresh["packages"]:
        pytest.skip("neither TRL nor verl can be imported")
    for record in loss_records(fresh):
        test_a_loss_is_that_of_the_package_without_its_padding(*record.values)
    for record in advantage_records(fresh):
        test_advantages_are_those_of_verl(record)
