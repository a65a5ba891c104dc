"""`gym.make` knows the worlds, here and in workers."""

import os
import pickle
import subprocess
import sys
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.envs.registration import WORLDS, register_all


@pytest.mark.parametrize("prompting", ["transcript", "step"])
@pytest.mark.parametrize("name", sorted(WORLDS))
def test_gymnasiums_own_checker_finds_nothing(name: str, prompting: str) -> None:
    check_env(gym.make(name, prompting=prompting, max_context=4096).unwrapped, skip_render_check=True)


def test_make_gives_the_bare_environment() -> None:
    env = gym.make("agentgym_tok/ALFWorld-v0")
    assert type(env) is ALFWorldEnv
    assert env.spec is not None


def test_a_pickled_spec_makes_the_same_environment() -> None:
    spec = gym.make("agentgym_tok/ALFWorld-v0", split="valid_unseen", max_steps=7).spec
    env: Any = gym.make(pickle.loads(pickle.dumps(spec)))
    assert (env.max_steps, len(env.engine.tasks())) == (7, 134)


def test_registering_twice_changes_nothing() -> None:
    before = dict(gym.registry)
    register_all()
    assert gym.registry == before


def test_the_module_prefix_imports_the_library_in_a_new_process() -> None:
    code = "import gymnasium; print(gymnasium.make('agentgym_tok:agentgym_tok/ALFWorld-v0').reset(seed=0)[1]['task'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ALFWorld-synth/train/")


def test_ids_do_not_depend_on_the_hash_seed() -> None:
    code = """
import agentgym_tok, gymnasium
env = gymnasium.make("agentgym_tok/ALFWorld-v0")
for prompting in ("transcript", "step"):
    env = gymnasium.make("agentgym_tok/ALFWorld-v0", prompting=prompting)
    obs, info = env.reset(seed=4)
    for _ in range(3):
        obs, *_, info = env.step(env.unwrapped.chat.encode_turn(env.unwrapped.hints()["expert"]))
        print(info["context_digest"], info["task"])
"""
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(runs) == 1
    assert len(runs.pop().splitlines()) == 6
