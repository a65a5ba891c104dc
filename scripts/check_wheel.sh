#!/usr/bin/env bash
# Build the wheel and look at it from a clean environment: everything is inside, and nothing else becomes importable.
set -eu
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python -m build --quiet --outdir "$room/dist" . >"$room/build.log" 2>&1 || { cat "$room/build.log"; exit 1; }
python -m venv "$room/venv"
"$room/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$room"/dist/*.whl
cd /
"$room/venv/bin/python" - <<'PY'
import sys
from importlib import metadata, resources
from importlib.util import find_spec

import gymnasium as gym

import agentgym_tok.envs
import agentgym_tok.harness

for name in ("envs", "harness", "tests", "examples", "scripts"):
    assert find_spec(name) is None, f"{name} became importable"
for name in ("torch", "transformers"):
    assert name not in sys.modules, f"{name} was imported"
for file in ("tokenizer.json", "template.jinja"):
    assert (resources.files("agentgym_tok.chat") / "builtin" / file).read_text(encoding="utf-8"), file
assert (resources.files("agentgym_tok") / "py.typed").is_file()
assert (resources.files("agentgym_tok.trace.viewer") / "page.html").is_file()
obs, info = gym.make("agentgym_tok/ALFWorld-v0").reset(seed=0)
assert len(obs) and info["task"]
print("wheel", metadata.version("agentgym-tok"), "works from a clean environment")
PY
"$room/venv/bin/agentgym-tok" list >/dev/null
