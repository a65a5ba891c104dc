"""A cell of the study that was broken off goes on, wherever that was; a model written by halves is none."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

STUDY = Path(__file__).resolve().parents[2] / "examples" / "study_sdar"
sys.path.insert(0, str(STUDY))

import cell as cells  # noqa: E402
from arms import ARMS  # noqa: E402
from cell import Cell, Worlds  # noqa: E402
from run import REDUCED, WARM  # noqa: E402

from agentgym_tok.learner import Batch  # noqa: E402
from agentgym_tok.learner.torch_learner import TorchLearner  # noqa: E402

SMALL = {**REDUCED, "steps": 3, "save_every": 2, "tasks": 1, "group_size": 2}
WORLDS = Worlds(source="synth", splits=("train",), games=1, train_steps=3, test_steps=3)


class Broken(Exception):
    """What a test breaks a cell off with."""


def made(folder: Path, learner: type[TorchLearner] = TorchLearner) -> Cell:
    return Cell("grpo", 0, folder, WARM, WORLDS, SMALL, learner)


def is_done(folder: Path) -> bool:
    lines = (folder / "train" / "figures.jsonl").read_text().splitlines()
    tested = json.loads((folder / "test" / "results.json").read_text())
    return [json.loads(line)["step"] for line in lines] == [1, 2, 3] and len(tested["train"]) == 1


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_differs_from_grpo_in_what_its_teacher_says_alone(arm: str, tmp_path: Path) -> None:
    config, grpo = (Cell(name, 0, tmp_path, WARM, Worlds(), {}).config() for name in (arm, "grpo"))
    may_differ = {"objective", "skills", "distillation_decay", "loss"}
    assert config.model_dump(exclude={*may_differ, "advantages"}) == grpo.model_dump(
        exclude={*may_differ, "advantages"}
    )
    if config.loss.policy_coefficient:  # without a policy term nothing reads the advantages, nor is near the reference
        taught = {"distillation", "distillation_coefficient", "beta", "gate"}
        assert config.advantages == grpo.advantages
        assert config.loss.model_dump(exclude=taught) == grpo.loss.model_dump(exclude=taught)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_cell_goes_on_with_and_without_a_checkpoint(after: int, tmp_path: Path) -> None:
    class Breaks(TorchLearner):
        def update(self, batch: Batch) -> dict[str, float]:
            if self.updates == after:
                raise Broken
            return super().update(batch)

    with pytest.raises(Broken):
        made(tmp_path, Breaks).run()
    assert (tmp_path / "train" / "checkpoint.pt").is_file() == (after == 2)
    made(tmp_path).run()
    assert is_done(tmp_path)


def test_half_a_model_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(model: Any, weights: Mapping[str, Any], source: str, chat: Any, folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{")
        raise Broken

    with monkeypatch.context() as patched:
        patched.setattr(cells, "save_model", breaks)
        with pytest.raises(Broken):
            made(tmp_path).run()
    made(tmp_path).run()
    assert is_done(tmp_path)
