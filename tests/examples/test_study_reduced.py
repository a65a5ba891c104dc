"""The study of minutes: GRPO and SDAR learn four games, and a learner with a broken gradient does not."""

import json
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

# Points that broken learners gained, seeds 0 to 3 with shuffled advantages and then with shifted masks; and that the
# right one gained, seeds 0 to 2. Measured as these tests measure; `docs/study.md` says how.
BROKEN = SABOTAGED_FIGURES
RIGHT = RIGHT_FIGURES
MARGIN = 15.0
"""More than three standard deviations above what broken learners gained, and well below what the right one does."""


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


def test_the_margin_is_out_of_reach_of_broken_learners() -> None:
    assert statistics.fmean(BROKEN) + 3 * statistics.stdev(BROKEN) < MARGIN < min(RIGHT)


def test_grpo_and_sdar_gain_the_margin_and_are_drawn(tmp_path: Path) -> None:
    for script, *options in (
        ("run.py", "--reduced", "--out", str(tmp_path / "study")),
        ("draw.py", str(tmp_path / "study"), "--out", str(tmp_path / "figures")),
    ):
        done = subprocess.run(
            [sys.executable, "-W", "error", str(STUDY / script), *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    warm = success(tmp_path / "study" / "warm" / "test")
    for arm in ("grpo", "sdar"):
        assert success(tmp_path / "study" / arm / "0" / "test") - warm > MARGIN, arm
    tables = (tmp_path / "figures" / "tables.md").read_text()
    for line in ("| grpo | 1 |", "| sdar | 1 |", "| sdar - grpo | 1 |", "| grpo - warm | 1 |"):
        assert line in tables
    assert {file.name for file in (tmp_path / "figures").glob("*.png")} >= {"kinds.png", "rollouts_success.png"}


@pytest.mark.parametrize("learner", [ShuffledAdvantages, ShiftedMasks])
def test_a_broken_gradient_does_not_gain_the_margin(learner: type[TorchLearner], tmp_path: Path) -> None:
    assert gained(tmp_path, learner) < MARGIN / 3


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("learner", [TorchLearner, ShuffledAdvantages, ShiftedMasks])
def test_other_seeds_say_the_same(learner: type[TorchLearner], seed: int, tmp_path: Path) -> None:
    assert (gained(tmp_path, learner, seed) > MARGIN) == (learner is TorchLearner)
