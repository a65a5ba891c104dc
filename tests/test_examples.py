"""Every example runs offline and says that it worked."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
EXPECTED = {
    "quickstart.py": "verified",
    "custom_policy.py": "return",
    "evaluate.py": "All    n  30  100.0 %",
    "demo.py": "every law holds",
    "webshop.py": "expert on WebShop-synth eval: score 100.0",
    "searchqa.py": "All      n  50  EM 100.0",
    "compaction.py": "summary  solved 6 of 6",
    "subagents.py": "answered 6 of 6",
    "notebook.py": "[1.0, 1.0, 1.0]",
    "vllm_run.py": "No server is named",
    "foreign_agent.py": "0 breaches; 34 of 34 sampled ids trained",
    "train_tiny.py": "it learned which button pays",
}


def test_every_example_is_run() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert EXPECTED[name] in done.stdout
    assert not list(tmp_path.iterdir())
