"""What the study says of its teacher is counted right, on rollouts whose turns are known."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

STUDY = Path(__file__).resolve().parents[2] / "examples" / "study_sdar"
sys.path.insert(0, str(STUDY))

from cell import CHAT  # noqa: E402
from teacher_gap import area, judged  # noqa: E402

from agentgym_tok.envs.alfworld import ALFWorldEnv  # noqa: E402
from agentgym_tok.harness import Harness  # noqa: E402
from agentgym_tok.policies import load_policy  # noqa: E402
from agentgym_tok.trace import rows  # noqa: E402


def test_the_area_counts_pairs_and_halves_ties() -> None:
    random = np.random.default_rng(0)
    values_N, good_N = random.integers(0, 5, 60).astype(float), random.random(60) < 0.4
    pairs = [(good > bad) + (good == bad) / 2 for good in values_N[good_N] for bad in values_N[~good_N]]
    assert area(values_N, good_N) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize(("name", "good"), [("explorer", 1.0), ("random", 0.3)])
def test_turns_are_judged_by_what_the_explorer_would_say_there(name: str, good: float) -> None:
    tasks = ALFWorldEnv().engine.tasks()[:2]
    episodes = Harness(load_policy(name, CHAT), CHAT).run_many(ALFWorldEnv, tasks, concurrency=2, seed=0)
    (made,) = zip(*(rows(episode, objective="sft") for episode in episodes), strict=True)  # one row each
    student = [np.where(row.mask_T, -1.0, 0.0) for row in made]
    teacher = [np.where(row.mask_T, -1.0 + (row.turn_T == 0), 0.0) for row in made]
    found = judged(episodes, made, student, teacher)
    assert found.good_N.mean() == 1 if good == 1 else found.good_N.mean() < good
    assert (found.gap_N > 0).sum() == len(episodes)
    assert found.gap_N.sum() == found.gap_T.sum()


def test_the_script_tells_what_each_arm_makes_of_the_teacher() -> None:
    command = [sys.executable, "-W", "error", str(STUDY / "teacher_gap.py"), "--source", "synth", "--games", "1"]
    command += ["--arm", "sdar", "--arm", "sdar_strong"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    weak, strong = [line.split("|") for line in done.stdout.splitlines()[-2:]]
    assert float(strong[2]) == pytest.approx(10 * float(weak[2]), rel=0.2)
    assert float(strong[3]) == pytest.approx(float(weak[3]), abs=0.1)
