"""The study of minutes: GRPO and SDAR learn four games, and a learner with a broken gradient does not."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

STUDY = Path(__file__).resolve().parents[2] / "examples" / "study_sdar"
sys.path[:0] = [str(STUDY), str(Path(__file__).parent)]

from cell import Cell, play_test  # noqa: E402
from run import REDUCED, REDUCED_WORLDS, WARM  # noqa: E402
from sabotage import ShiftedMasks, ShuffledAdvantages  # noqa: E402

from agentgym_tok.learner.torch_learner import TorchLearner  # noqa: E402

MARGIN = 15.0
"""Points; more than three standard deviations above what broken learners gain, which a deep test measures anew."""


def success(test: Path) -> float:
    """Return the rate of a test, in percent."""
    found: Mapping[str, Mapping[str, Mapping[str, float]]] = json.loads((test / "results.json").read_text())
    return 100 * statistics.fmean(game["success"] for games in found.values() for game in games.values())


def gained(folder: Path, learner: type[TorchLearner], seed: int = 0) -> float:
    """Train a cell by GRPO, and return what it gained over the warm start, in points."""
    play_test(WARM, folder / "warm", REDUCED_WORLDS)
    cell = Cell("grpo", seed, folder / "cell", WARM, REDUCED_WORLDS, REDUCED, learner)
    cell.run()
    return success(folder / "cell" / "test") - success(folder / "warm")


@pytest.mark.parametrize("arm", ["grpo", "sdar"])
def test_an_arm_gains_the_margin_and_is_drawn(arm: str, tmp_path: Path) -> None:
    # One thread each, or the workers of the tests take the cores from each other.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for script, *options in (
        ("run.py", "--reduced", "--arm", arm, "--out", str(tmp_path / "study")),
        ("draw.py", str(tmp_path / "study"), "--out", str(tmp_path / "figures")),
    ):
        command = [sys.executable, "-W", "error", str(STUDY / script), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
    warm, trained = (success(tmp_path / "study" / place / "test") for place in ("warm", f"{arm}/0"))
    assert trained - warm > MARGIN
    tables = (tmp_path / "figures" / "tables.md").read_text()
    assert f"| {arm} | 1 |" in tables
    assert f"| {arm} - warm | 1 |" in tables
    assert {file.name for file in (tmp_path / "figures").glob("*.png")} >= {"kinds.png", "rollouts_success.png"}


@pytest.mark.parametrize("learner", [ShuffledAdvantages, ShiftedMasks])
def test_a_broken_gradient_does_not_gain_the_margin(learner: type[TorchLearner], tmp_path: Path) -> None:
    assert gained(tmp_path, learner) < MARGIN / 3


@pytest.mark.deep
def test_the_margin_is_out_of_reach_of_broken_learners_and_within_that_of_the_right_one(tmp_path: Path) -> None:
    learners = (TorchLearner, ShuffledAdvantages, ShiftedMasks)
    right, *broken = (
        [gained(tmp_path / learner.__name__ / str(seed), learner, seed) for seed in range(3)] for learner in learners
    )
    points = [point for part in broken for point in part]
    assert statistics.fmean(points) + 3 * statistics.stdev(points) < MARGIN < min(right)
