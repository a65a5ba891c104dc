"""A real vLLM: what is logged is what it read and drew, and transformers finds it as likely."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("aiohttp", reason="the extra engines is not installed")

from played import TOLERANCE, TURNS, WORLDS, play, prove
from vllm_server import Server, eventually, metric, serving

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.policies.hf import HFPolicy
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import verify
from agentgym_tok.types import Delta, ScoreRequest

pytestmark = pytest.mark.engine

tiny_only = pytest.mark.parametrize("folder", ["tiny"], indirect=True)


def turns_of(answers: Sequence[Completion | Exception]) -> list[Completion]:
    turns = [answer for answer in answers if isinstance(answer, Completion)]
    assert len(turns) == len(answers), answers
    return turns


def pieces_of(policy: VLLMPolicy, request: Request) -> aclosing[AsyncGenerator[Delta]]:
    pieces = policy.stream(request)
    assert isinstance(pieces, AsyncGenerator)
    return aclosing(pieces)


async def streamed(policy: VLLMPolicy, request: Request) -> tuple[list[int], Completion]:
    """Return the ids of all pieces, and the turn that the last piece carries."""
    ids: list[int] = []
    async with pieces_of(policy, request) as pieces:
        async for piece in pieces:
            ids += piece.ids_T.tolist()
            if piece.completion is not None:
                return ids, piece.completion
    raise AssertionError("the stream has no end")


@pytest.mark.parametrize("world", WORLDS)
def test_an_episode_is_exact_trained_and_as_likely_in_transformers(
    policy: VLLMPolicy,
    chat: ChatFormat,
    scorer: HFPolicy,
    world: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    episodes = play(policy, chat, world, tmp_path)
    record_property("largest difference", prove(episodes, tmp_path, chat, scorer))


@pytest.mark.deep
@tiny_only
@pytest.mark.parametrize("world", WORLDS)
def test_many_episodes_at_once_are_exact_too(
    policy: VLLMPolicy,
    chat: ChatFormat,
    scorer: HFPolicy,
    world: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    episodes = play(policy, chat, world, tmp_path, tasks=4, group_size=2)
    record_property("largest difference", prove(episodes, tmp_path, chat, scorer))


def test_ids_that_no_text_gives_are_read_as_they_are(policy: VLLMPolicy, chat: ChatFormat, scorer: HFPolicy) -> None:
    draw = np.random.default_rng(0)
    asked = [
        Request(as_ids(draw.integers(chat.vocab_size, size=length)), Sampling(max_tokens=8), seed=length)
        for length in (1, 17, 300)
    ]
    for request, turn in zip(asked, turns_of(policy.generate(asked)), strict=True):
        start, whole_T = len(request.ids_T), np.concatenate([request.ids_T, turn.ids_T])
        (scores,) = scorer.score([ScoreRequest(as_ids(whole_T), ((start, len(whole_T), request.sampling),))])
        assert turn.logprobs_T is not None
        np.testing.assert_allclose(turn.logprobs_T, scores.raw_S, atol=TOLERANCE, rtol=0)


def test_a_seed_draws_the_same_in_a_batch_alone_and_streamed(policy: VLLMPolicy, chat: ChatFormat) -> None:
    prompt_T = chat.open([{"role": "user", "content": "Say anything."}]).ids
    asked = [Request(prompt_T, Sampling(max_tokens=24), seed=seed) for seed in (1, 2, 3, 1)]
    together = turns_of(policy.generate(asked))
    assert together[0].ids_T.tolist() == together[3].ids_T.tolist()
    assert len({turn.ids_T.tobytes() for turn in together}) == 3
    for request, turn in zip(asked[:3], together, strict=False):
        (alone,) = turns_of(policy.generate([request]))
        ids, last = asyncio.run(streamed(policy, request))
        assert turn.ids_T.tolist() == alone.ids_T.tolist() == last.ids_T.tolist() == ids
        for other in (alone, last):
            assert turn.logprobs_T is not None
            assert other.logprobs_T is not None
            np.testing.assert_allclose(turn.logprobs_T, other.logprobs_T, atol=TOLERANCE, rtol=0)


@tiny_only
def test_the_models_generation_config_has_no_effect(policy: VLLMPolicy, chat: ChatFormat, scorer: HFPolicy) -> None:
    prompt_T = chat.encode("hostile")  # the likeliest id after it is the end that the file names
    likeliest = [Request(prompt_T, Sampling(temperature=0, max_tokens=16))]
    (turn,), (expected,) = turns_of(policy.generate(likeliest)), turns_of(scorer.generate(likeliest))
    assert turn.ids_T.tolist() == expected.ids_T.tolist()
    assert turn.finish_reason == "length"
    drawn = policy.generate([Request(prompt_T, Sampling(max_tokens=1), seed=seed) for seed in range(32)])
    assert len({turn.ids_T.tobytes() for turn in turns_of(drawn)}) > 3


@tiny_only
def test_a_context_that_is_nearly_full_ends_as_truncated(policy: VLLMPolicy, chat: ChatFormat) -> None:
    assert "context 8,192" in policy.describe()
    nearly_T = as_ids(np.random.default_rng(0).integers(chat.vocab_size, size=8190))
    (turn,) = turns_of(policy.generate([Request(nearly_T, Sampling(max_tokens=24))]))
    assert (len(turn.ids_T), turn.finish_reason, turn.ids_exact) == (2, "truncated", True)


@tiny_only
def test_closing_a_stream_stops_the_engine(policy: VLLMPolicy, chat: ChatFormat, server: Server) -> None:
    def running() -> float:
        return metric(server, "vllm:num_requests_running")

    async def some_pieces() -> None:
        # The likeliest ids go round in a circle, so that the turn does not end by itself.
        request = Request(chat.encode("hostile"), Sampling(temperature=0, max_tokens=8000))
        async with pieces_of(policy, request) as pieces:
            while running() != 1:  # it is published now and then
                assert len((await anext(pieces)).ids_T)

    drawn = metric(server, "vllm:generation_tokens_total")
    asyncio.run(some_pieces())
    assert eventually(lambda: running() == 0)
    assert metric(server, "vllm:generation_tokens_total") - drawn < 4000


@pytest.mark.deep
@tiny_only
def test_an_engine_that_is_killed_gives_failed_episodes(
    vllm_environment: None, folder: Path, chat: ChatFormat, tmp_path: Path
) -> None:
    with serving(folder, tmp_path / "log") as server, VLLMPolicy(server.url, chat) as policy:

        def kill() -> None:
            eventually(lambda: metric(server, "vllm:generation_tokens_total") > 200)
            server.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        episodes = play(policy, chat, "ALFWorld", tmp_path / "run", tasks=8)
        killer.join()
    assert {episode.status for episode in episodes} == {"failed"}
    for episode in episodes:
        assert episode.failure is not None
        assert episode.failure.boundary == "policy"
        assert len(episode.turns) <= TURNS
    found = verify(tmp_path / "run", chat)
    assert found.ok, found.breaches
    assert found.episodes == len(episodes)
