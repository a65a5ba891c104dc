"""`agentgym-tok train`: presets, overrides, the plan, and a run that is killed and goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="the extra torch is not installed")

from agentgym_tok.cli.config_file import preset_names
from agentgym_tok.cli.main import main
from agentgym_tok.cli.options import parse
from agentgym_tok.cli.train import Options, run
from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.training.presets import PRESETS

Capture = pytest.CaptureFixture[str]

SMALL = """
world = "alfworld"
model = "new:qwen2?hidden=32&layers=1&heads=2&kv_heads=1&context=2048"
policy = "hf:{model}?device=cpu&batch_size=1"
objective = "dapo"
steps = 4
tasks = 2
group_size = 2
max_steps = 2
sampling = { max_tokens = 6 }
save_every = 2
[learner]
device = "cpu"
learning_rate = 1e-3
[evaluation]
every = 2
episodes = 2
sampling = { max_tokens = 6, temperature = 0.4 }
"""


def options(*arguments: str) -> Options:
    return parse(Options, [*arguments], program="agentgym-tok train")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    return tmp_path / "small.toml"


@pytest.mark.parametrize("name", preset_names(PRESETS))
def test_every_preset_has_a_plan(name: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = options(f"preset:{name}", "--dry-run")
    assert run(chosen) == 0
    plan = " ".join(capsys.readouterr().out.split())
    assert chosen.model in plan
    assert f"{chosen.steps:,}, a checkpoint every {chosen.save_every}" in plan
    assert f"{chosen.objective}: " in plan
    assert f"runs/train-{name}" in plan
    assert not Path("runs").exists()


def test_presets_hold_the_settings_of_the_paper() -> None:
    shop = options("preset:sdar-qwen2.5-7b-webshop")
    assert (shop.loss.distillation_coefficient, shop.loss.beta, shop.loss.kl_coefficient) == (0.01, 5, 0.01)
    assert (shop.loss.clip_low, shop.loss.clip_high, shop.loss.dual_clip) == (0.2, 0.2, 3)
    assert (shop.tasks, shop.group_size, shop.steps, shop.max_steps, shop.success_reward) == (16, 8, 150, 15, 10)
    assert (shop.learner.learning_rate, shop.sampling.temperature, shop.sampling.max_tokens) == (1e-6, 1, 512)
    assert (shop.advantages.statistics, shop.advantages.invalid_penalty) == ("step_row", 0.1)
    search = options("preset:sdar-qwen3-1.7b-searchqa")
    assert (search.loss.kl_coefficient, search.advantages.invalid_penalty, search.tasks) == (0.001, 0.01, 128)
    assert (search.evaluation.sampling.temperature, search.template) == (0, {"enable_thinking": False})


def test_options_lie_over_the_file_part_by_part(small: Path) -> None:
    found = options(str(small), "--learner.learning-rate", "0.5", "--loss.clip-high=0.4", "--tasks", "3")
    assert (found.learner.learning_rate, found.learner.device, found.tasks) == (0.5, "cpu", 3)
    assert (found.loss.clip_high, found.loss.clip_low) == (0.4, 0.2)
    named = options(str(small), "--objective", "cispo")
    assert (named.loss.policy, named.steps) == ("cispo", 4)


def test_wrong_usage_says_what_was_expected(small: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("world = ", encoding="utf-8")
    with pytest.raises(ConfigError, match="no toml"):
        options(str(tmp_path / "broken.toml"))
    with pytest.raises(FileNotFoundError, match=r"presets are .*tiny-alfworld-sft"):
        options(str(tmp_path / "absent.toml"))
    with pytest.raises(LookupError, match=r"unknown preset.*did you mean tiny-alfworld-sft"):
        options("preset:tiny-alfworld-stf")
    with pytest.raises(ConfigError, match="option steps: input should be greater"):
        options(str(small), "--steps", "0")
    with pytest.raises(ConfigError, match=r"needs a teacher.*next: give --skills.bank"):
        run(options(str(small), "--objective", "sdar"))
    with pytest.raises(ConfigError, match=r"which run goes on.*next: name its folder"):
        run(options(str(small), "--resume"))


def test_a_run_writes_all_it_has_to_and_goes_on_with_more_steps(small: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "run"
    assert run(options(str(small), "--out", str(folder))) == 0
    out = capsys.readouterr().out
    assert "step 4 of 4: rollouts/return" in out
    assert f"the model is in {folder / 'model'}" in out
    lines = [json.loads(line) for line in (folder / "figures.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert ["evaluation/success" in line for line in lines] == [False, True, False, True]
    assert json.loads((folder / "config.json").read_text())["loss"]["clip_high"] == 0.28
    assert main(["trace", "verify", str(folder)]) == 0
    assert run(options(str(small), "--out", str(folder), "--resume", "--steps", "5")) == 0
    assert len((folder / "figures.jsonl").read_text().splitlines()) == 5
    with pytest.raises(ConfigError, match=r"begun with another learner\.learning_rate.*got: 0\.1; expected: 0\.001"):
        run(options(str(small), "--out", str(folder), "--resume", "--learner.learning-rate", "0.1"))
    # What was trained can be evaluated as any other model.
    policy = f"hf:{folder / 'model'}?device=cpu"
    evaluated = ["eval", "alfworld", "--episodes", "1", "--max-steps", "1", "--sampling.max-tokens", "4"]
    assert main([*evaluated, "--policy", policy, "--out", str(tmp_path / "eval")]) == 0


@pytest.mark.deep
def test_a_killed_process_leaves_a_run_that_ends_as_if_nothing_had_been(small: Path, tmp_path: Path) -> None:
    import torch

    code = (
        "import sys; from agentgym_tok.cli.options import parse; from agentgym_tok.cli.train import Options, run;"
        "sys.exit(run(parse(Options, sys.argv[1:], program='train')))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(name: str, *more: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", code, str(small), "--out", str(tmp_path / name), "--steps", "8", *more]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

    assert start("whole").wait() == 0
    for more in ([], ["--resume"]):
        process = start("killed", *more)
        figures = tmp_path / "killed" / "figures.jsonl"
        lines = 3 if more else 1
        while process.poll() is None and (not figures.exists() or len(figures.read_text().splitlines()) < lines):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start("killed", "--resume").wait() == 0
    whole, killed = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("whole", "killed"))
    weights = whole["learner"]["weights"]
    assert all(torch.equal(tensor, weights[name]) for name, tensor in killed["learner"]["weights"].items())
    assert main(["trace", "verify", str(tmp_path / "killed")]) == 0
