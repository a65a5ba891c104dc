"""The example of a vLLM run, against a server that answers as vLLM does."""

import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "vllm_run.py"


def test_the_example_plays_logs_and_proves(fake: Any, tmp_path: Path) -> None:
    fake.models = {"tiny": 8192}
    options = ["--chat", "builtin", "--tasks", "2", "--group-size", "2", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-W", "error", str(EXAMPLE), fake.url, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 episodes, 0 solved, 0 failed" in done.stdout
    assert "+ masked 0\nverified\n" in done.stdout
    assert list((tmp_path / "run").iterdir())
