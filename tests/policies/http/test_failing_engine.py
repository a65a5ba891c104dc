"""Sixty-four episodes at once against an engine that fails in every known way: no turn is lost or counts twice."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("httpx2", reason="the extra engines is not installed")

from fake_vllm import CHAT, COMPLETIONS, GENERATE, TRANSIENT

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.harness import Harness
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.trace import RunMeta, TraceStore, account, verify

BUILTIN = ChatFormat.builtin()
META = RunMeta(fingerprint=BUILTIN.fingerprint, vocab_size=BUILTIN.vocab_size, chat="builtin")
FATAL = ("400", "longer_prompt", "odd_finish", "foreign_id")
MARKED = {"sentinel": "sentinel_logprobs", "no_logprobs": "no_logprobs", "control_lost": "inexact_ids"}
KINDS = (*TRANSIENT, *FATAL, *MARKED)


def make_env() -> ALFWorldEnv:
    return ALFWorldEnv(BUILTIN, split="valid_seen", max_steps=6)


def goes_wrong(seed: int, attempt: int) -> str | None:
    draw = np.random.default_rng([seed, attempt])
    if seed == 1 or draw.random() > 0.2:  # 1 is the seed of the first token
        return None
    weights = np.array([6.0] * len(TRANSIENT) + [1.0] * len(FATAL) + [2.0] * len(MARKED))
    return KINDS[int(draw.choice(len(KINDS), p=weights / weights.sum()))]


@pytest.mark.parametrize("path", [GENERATE, COMPLETIONS])
def test_no_turn_is_lost_or_doubled_and_each_failure_is_a_record(
    fake: Any, at_once: None, tmp_path: Path, path: str
) -> None:
    fake.paths = {path, CHAT}
    fake.fault = goes_wrong
    with VLLMPolicy(fake.url, BUILTIN) as policy, TraceStore(tmp_path, meta=META) as store:
        harness = Harness(policy, BUILTIN, store=store, sampling=Sampling(max_tokens=48))
        fake.asked.clear()
        episodes = harness.run_many(make_env, range(16), group_size=4, concurrency=64, seed=3)
    del fake.tries[1]
    turns = [turn for episode in episodes for turn in episode.turns]
    received = {params["seed"]: params for params in fake.asked}

    assert len(episodes) == 64
    # Each turn was asked for under a seed of its own, and every request that the engine saw belongs to one.
    assert Counter(turn.seed for turn in turns) == Counter(received.keys())
    # The engine got the ids that the trace holds; every attempt at a turn got the same.
    for params in fake.asked:
        assert params["ids"] == received[params["seed"]]["ids"]
    for turn in turns:
        params, last = received[turn.seed], goes_wrong(turn.seed, fake.tries[turn.seed] - 1)
        assert turn.context.ids.tolist() == params["ids"]
        if turn.failure is not None:
            assert turn.failure.boundary == "policy"
            assert last in FATAL or last in TRANSIENT
            assert turn.failure.message
            continue
        ids, logprobs, _ = fake.draw(params["ids"], params)
        assert last is None or last in MARKED
        assert turn.completion.ids_T.tolist() == (ids[1:] if last == "control_lost" else ids)
        assert turn.completion.ids_exact == (last != "control_lost")
        if last is None:
            assert turn.completion.logprobs_T.tolist() == logprobs
    # Failures end their episode and no other one.
    failed = [episode for episode in episodes if episode.status == "failed"]
    assert len(failed) == sum(turn.failure is not None for turn in turns) > 0
    assert {episode.status for episode in episodes} == {"failed", "done"}
    # Retries stay within the budget.
    requests = len(turns) + 4
    assert sum(fake.tries.values()) - len(turns) == policy.retries
    assert 0 < policy.retries <= 8 + 0.25 * requests

    found = verify(tmp_path, BUILTIN)
    assert found.ok, found
    masked = account(episodes).masked
    assert set(MARKED.values()) <= set(masked)
