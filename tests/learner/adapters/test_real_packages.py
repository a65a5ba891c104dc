"""The trainers' own classes take our rows: recorded vectors are made again, and TRL trains a step.

Each package is looked for where `AGENTGYM_TOK_TRAINERS` says (folders, separated as in PYTHONPATH), and TRL also in the
folder of `make templates`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

HERE = Path(__file__).parent
FOLDERS = os.environ.get("AGENTGYM_TOK_TRAINERS", "")
TEMPLATES = os.environ.get("AGENTGYM_TOK_TRL", "")
MODULES = {
    "tinker": "tinker",
    "verl": "verl.experimental.agent_loop.agent_loop",
    "skyrl": "skyrl.train.utils.trainer_utils",
    "prime_rl": "prime_rl.transports.rollouts.types",
    "trl": "trl",
}

pytestmark = pytest.mark.deep


def run(package: str, *command: str) -> subprocess.CompletedProcess[str]:
    # TRL stands alone: what other trainers need would change what it imports.
    path = str(Path(TEMPLATES).parents[1]) if package == "trl" and TEMPLATES else FOLDERS
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)


def need(package: str) -> None:
    early = "import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict; "
    if run(package, "-c", f"{early}import {MODULES[package]}").returncode:
        pytest.skip(f"{package} cannot be imported")


@pytest.mark.parametrize("package", MODULES)
def test_the_classes_make_of_our_rows_what_is_recorded(package: str, tmp_path: Path) -> None:
    need(package)
    ran = run(package, str(HERE / "real_packages.py"), package, "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    made, recorded = (
        json.loads((folder / f"{package}.json").read_text(encoding="utf-8")) for folder in (tmp_path, HERE / "vectors")
    )
    assert made == recorded


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Any:
    need("trl")
    out = tmp_path_factory.mktemp("trl") / "steps.json"
    ran = run("trl", str(HERE / "real_trl.py"), str(out))
    assert ran.returncode == 0, ran.stderr
    return json.loads(out.read_text(encoding="utf-8"))


def test_trl_trains_a_step_of_grpo_on_our_rollouts(steps: Any) -> None:
    found = steps["grpo_step"]
    assert found["reward"] == pytest.approx(0.5)
    assert found["moved"] > 1e-4


def test_trl_trains_a_step_of_sdar(steps: Any) -> None:
    found = steps["sdar_step"]
    assert found["moved"] > 1e-4
    assert set(found["figures"]) == {"sdar/teacher_gap", "sdar/gate", "sdar/gate_active"}
    assert 0 < found["figures"]["sdar/gate"] < 1


def test_its_term_is_that_of_plain_forward_passes_however_the_batch_is_split(steps: Any) -> None:
    found = steps["sdar_batch"]
    assert found["teacher_difference"] < 1e-5
    assert found["gap"] > 1e-3
    assert found["found"] == pytest.approx(found["term"], abs=1e-6)
    assert found["halves"] < 1e-6
    assert found["gradient_halves"] < 1e-4 * found["gradient"] + 1e-7


def test_teachers_without_skills_add_nothing_to_the_value_and_missing_ones_are_said(steps: Any) -> None:
    found = steps["sdar_without"]
    assert abs(found["empty"]) < 1e-7
    assert found["refused"] == 0
    assert "no teachers" in found["said"]
