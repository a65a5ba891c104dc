"""Sixty-four episodes at once against an engine that fails in every known way: no turn is lost or counts twice."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="the extra engines is not installed")

import aiohttp
from fake_vllm import CHAT, COMPLETIONS, FAILURES, GENERATE, HANGING, SWAPPED, TWISTS

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.harness import Harness
from agentgym_tok.policies import BasePolicy
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.trace import RunMeta, TraceStore, Turn, account, verify

BUILTIN = ChatFormat.builtin()
META = RunMeta(fingerprint=BUILTIN.fingerprint, vocab_size=BUILTIN.vocab_size, chat="builtin")
BROKEN = ("reset", "cut", "twice", "trickle", "refused")
KINDS = (*FAILURES, *SWAPPED, *TWISTS, *HANGING, *BROKEN, "no_ids")
HARMLESS = {"trickle", "twice", "wrong_prompt", "bad_versions"}
"""Faults that do nothing in one kind of answer or at one endpoint: a whole answer is not said twice."""
ATTEMPTS = 4
UNSURE = {"stop_lost", "control_lost", "no_ids"}
PATIENCE_S, CALM_S = 2.0, 60.0
"""How long a turn is waited for where an attempt at it may hang, and where none does: however busy the machine is."""


class Trouble:
    """Say how an attempt at a turn fails: every kind comes up within the first turns, and later ones fail by chance."""

    def __init__(self) -> None:
        self._dealt: dict[int, str | None] = {}

    def deal(self, seeds: Sequence[int]) -> None:
        """Decide how the first attempts of a batch fail; the order of its turns does not matter."""
        for seed in sorted(seeds):
            place, odd = divmod(len(self._dealt), 2)
            self._dealt[seed] = KINDS[place] if odd and place < len(KINDS) else _chance(seed, 0)

    def __call__(self, seed: int, attempt: int) -> str | None:
        return self._dealt.get(seed) if attempt == 0 else _chance(seed, attempt)

    def may_hang(self, seed: int) -> bool:
        """Whether any attempt at a turn hangs."""
        return any(self(seed, attempt) in HANGING for attempt in range(ATTEMPTS))


def _chance(seed: int, attempt: int) -> str | None:
    draw = np.random.default_rng([seed, attempt])
    return None if draw.random() > 0.15 else KINDS[int(draw.integers(len(KINDS)))]


class Hasty(BasePolicy):
    """Wait for no turn that may hang longer than a moment, and have every other one streamed."""

    name = "hasty"

    def __init__(self, policy: VLLMPolicy, trouble: Trouble) -> None:
        self._policy, self._trouble = policy, trouble

    def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        self._trouble.deal([request.seed for request in requests])
        asked = [replace(request, deadline=time.time() + self._patience_s(request.seed)) for request in requests]
        whole = [request for request in asked if request.seed % 2]
        streamed = [request for request in asked if not request.seed % 2]
        with ThreadPoolExecutor(1) as other:
            drawn = other.submit(self._policy.generate, whole)
            told = asyncio.run(self._streams(streamed))
            answers = dict(zip((*whole, *streamed), (*drawn.result(), *told), strict=True))
        return [answers[request] for request in asked]

    def _patience_s(self, seed: int) -> float:
        return PATIENCE_S if self._trouble.may_hang(seed) else CALM_S

    async def _streams(self, asked: Sequence[Request]) -> list[Any]:
        return await asyncio.gather(*map(self._stream, asked), return_exceptions=True)

    async def _stream(self, request: Request) -> Completion:
        pieces = [piece async for piece in self._policy.stream(request)]
        completion = pieces[-1].completion
        assert completion is not None
        return completion


def make_env() -> ALFWorldEnv:
    return ALFWorldEnv(BUILTIN, split="valid_seen", max_steps=4)


@pytest.fixture
def closed_door(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections where the engine is away for a while."""
    send = aiohttp.ClientSession._request

    async def sent(session: Any, method: str, url: Any, **given: Any) -> Any:
        if method == "POST":
            body = json.loads(given["data"])
            seed = body.get("sampling_params", body).get("seed")
            if seed is not None and fake.fault(seed, fake.tries[seed]) == "refused":
                fake.tries[seed] += 1
                raise aiohttp.ClientConnectionError("Cannot connect to host")
        return await send(session, method, url, **given)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", sent)


def _delivered(fake: Any, turn: Turn, last: str | None, received: dict[int, dict[str, Any]]) -> bool:
    """Whether a turn came, whose last attempt failed as said; what it holds must follow from that."""
    if turn.failure is not None:
        assert turn.failure.boundary == "policy"
        assert turn.failure.message
        assert last not in {None, "trickle", "sentinel", "no_logprobs"} or _late(turn)
        assert _late(turn) or last not in HANGING
        assert not len(turn.completion.ids_T)
        return False
    assert fake.answered[turn.seed] >= 1
    ids, logprobs, _ = fake.draw(received[turn.seed]["ids"], received[turn.seed])
    if last is None or last in HARMLESS:
        assert (turn.completion.ids_T.tolist(), turn.completion.ids_exact) == (ids, True)
        assert turn.completion.logprobs_T is not None
        assert turn.completion.logprobs_T.tolist() == logprobs
    elif last in UNSURE:
        assert (turn.completion.ids_exact, turn.completion.logprobs) == (False, "missing")
        assert turn.completion.note
    else:
        assert last in {"sentinel", "no_logprobs"}
        assert turn.completion.ids_T.tolist() == ids
        assert turn.completion.logprobs in {"sentinel", "missing"}
    return True


def _late(turn: Turn) -> bool:
    return "in time" in str(turn.failure)


@pytest.mark.usefixtures("at_once", "closed_door")
@pytest.mark.parametrize("path", [GENERATE, COMPLETIONS])
def test_no_turn_is_lost_or_doubled_and_each_failure_is_a_record(fake: Any, tmp_path: Path, path: str) -> None:
    fake.paths = {path, CHAT}
    fake.fault = trouble = Trouble()
    with VLLMPolicy(fake.url, BUILTIN) as policy, TraceStore(tmp_path, meta=META) as store:
        harness = Harness(Hasty(policy, trouble), BUILTIN, store=store, sampling=Sampling(max_tokens=48))
        fake.asked.clear()
        fake.answered.clear()
        episodes = harness.run_many(make_env, range(16), group_size=4, concurrency=64, seed=3)
        retries = policy.retries
    del fake.tries[1]  # the seed of the first token
    met = {seed: [trouble(seed, attempt) for attempt in range(count)] for seed, count in fake.tries.items()}
    turns = [turn for episode in episodes for turn in episode.turns]
    received = {params["seed"]: params for params in fake.asked}

    assert len(episodes) == 64
    assert {kind for kinds in met.values() for kind in kinds} == {None, *KINDS}
    # Each turn was asked for under a seed of its own, and every request that was sent belongs to one. Only what ran out
    # of time, on a busy machine, may not have got there.
    late = {turn.seed for turn in turns if _late(turn)}
    assert all(trouble.may_hang(seed) for seed in late)
    rushed = {seed for seed in late if met.get(seed, [None])[-1] not in HANGING}
    assert Counter(turn.seed for turn in turns) == Counter({*fake.tries, *rushed})
    # The engine got the ids that the trace holds; every attempt at a turn got the same.
    contexts = {turn.seed: turn.context.ids.tolist() for turn in turns}
    assert all(params["ids"] == contexts[params["seed"]] for params in fake.asked)
    # Nobody asks again after a whole answer, unless it was a wrong one.
    wrong = {*SWAPPED, *TWISTS, "html"}
    assert all(count <= 1 + len([kind for kind in met[seed] if kind in wrong]) for seed, count in fake.answered.items())
    delivered = sum(_delivered(fake, turn, met.get(turn.seed, [None])[-1], received) for turn in turns)
    # Failures end their episode and no other one.
    failed = [episode for episode in episodes if episode.status == "failed"]
    assert len(failed) == len(turns) - delivered
    assert {episode.status for episode in episodes} == {"failed", "done"}
    # Retries stay within the budget, and each of them is one more request.
    again = sum(fake.tries.values()) - len(fake.tries)
    assert again <= retries <= again + len(rushed)
    assert 0 < retries <= 8 + 0.25 * (len(turns) + 4)

    found = verify(tmp_path, BUILTIN)
    assert found.ok, found
    assert {"sentinel_logprobs", "no_logprobs", "inexact_ids"} <= set(account(episodes).masked)
