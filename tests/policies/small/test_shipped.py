"""The weights that ship play as their cards say, and say what transformers would."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.envs.alfworld import ALFWorldEnv
from agentgym_tok.envs.searchqa import SearchQAEnv
from agentgym_tok.envs.webshop import WebShopEnv
from agentgym_tok.harness import Harness
from agentgym_tok.policies.small.builtin import BuiltinPolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import TraceStore, verify
from agentgym_tok.types import ScoreRequest

CHAT = ChatFormat.builtin()
WEIGHTS = Path(__file__).resolve().parents[3] / "agentgym_tok" / "policies" / "small" / "weights"
FOLDERS = sorted(folder.name for folder in WEIGHTS.iterdir())
WORLDS = {"alfworld": ALFWorldEnv, "searchqa": SearchQAEnv, "webshop": WebShopEnv}
GREEDY = Sampling(temperature=0.0, max_tokens=32)


def test_all_weights_are_small_and_have_a_card() -> None:
    assert sum(file.stat().st_size for file in WEIGHTS.rglob("*")) < 12 * 2**20
    for name in FOLDERS:
        assert {file.name for file in (WEIGHTS / name).iterdir()} == {
            "about.json",
            "card.md",
            "config.json",
            "model.safetensors",
        }
        assert json.loads((WEIGHTS / name / "about.json").read_text())["fingerprint"] == CHAT.fingerprint


def test_generated_households_are_mastered(tmp_path: Path) -> None:
    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        harness = Harness("builtin", CHAT, store=store, sampling=GREEDY)
        episodes = harness.run_many(lambda: ALFWorldEnv(CHAT, split="valid_unseen", max_steps=30), range(0, 134, 4))
    assert np.mean([bool(episode.success) for episode in episodes]) > 0.75  # 91 % of all 134
    assert verify(tmp_path / "run").ok


@pytest.mark.parametrize("name", FOLDERS)
def test_scores_are_those_of_transformers(name: str) -> None:
    pytest.importorskip("transformers", reason="the extra torch is not installed")
    from agentgym_tok.policies.hf import HFPolicy

    policy, theirs = BuiltinPolicy("", CHAT, world=name), HFPolicy(WEIGHTS / name, CHAT, device="cpu")
    env = WORLDS[name](CHAT, split="train")
    for seed in range(3):
        obs_T, _ = env.reset(seed=seed)
        sampling = Sampling(max_tokens=32)
        (turn,) = policy.generate([Request(obs_T, sampling, seed=seed)])
        assert isinstance(turn, Completion)
        assert turn.logprobs_T is not None
        whole = as_ids(np.concatenate([obs_T, turn.ids_T]))
        (score,) = theirs.score([ScoreRequest(whole, ((len(obs_T), len(whole), sampling),))])
        np.testing.assert_allclose(turn.logprobs_T, score.raw_S, atol=2e-4)
