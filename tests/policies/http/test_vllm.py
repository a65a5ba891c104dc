"""vLLM behind HTTP: ids and log-probabilities as the engine drew them, or a mark, or an error that names the trap."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="the extra engines is not installed")

from fake_vllm import CHAT, COMPLETIONS, GENERATE, TRANSIENT

from agentgym_tok import ChatFormat, Completion, Policy, Request, Sampling
from agentgym_tok.errors import ConfigError, FingerprintMismatch, PolicyError, TransientPolicyError, UnknownName
from agentgym_tok.policies import load_policy
from agentgym_tok.policies.http.engine import API_KEY
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.tokens import as_ids

BUILTIN = ChatFormat.builtin()
IDS_T = BUILTIN.open([{"role": "user", "content": "You see a mug 1."}]).ids
PATHS = (GENERATE, COMPLETIONS, CHAT)
STREAMS = (False, True)


def asked(seed: int, **sampling: Any) -> Request:
    return Request(IDS_T, Sampling(**{"max_tokens": 64, **sampling}), seed=seed)


@pytest.fixture(params=PATHS)
def policy(request: pytest.FixtureRequest, fake: Any) -> Iterator[VLLMPolicy]:
    fake.paths = {request.param}
    with VLLMPolicy(fake.url, BUILTIN) as made:
        yield made


def exactly(fake: Any, request: Request, turn: Completion | Exception) -> None:
    """Check a turn against what the engine drew."""
    assert isinstance(turn, Completion)
    params = {"seed": request.seed, "stop_token_ids": BUILTIN.stop_ids, "max_tokens": request.sampling.max_tokens}
    ids, logprobs, finish = fake.draw(request.ids_T.tolist(), params)
    assert turn.ids_T.tolist() == ids
    assert turn.logprobs_T is not None
    assert turn.logprobs_T.tolist() == logprobs
    assert (turn.finish_reason, turn.ids_exact, turn.logprobs, turn.sampling) == (finish, True, "raw", request.sampling)


async def pieces(policy: VLLMPolicy, request: Request) -> list[Any]:
    return [piece async for piece in policy.stream(request)]


def drawn(policy: VLLMPolicy, request: Request, *, stream: bool) -> Completion:
    if not stream:
        return policy.answer(request)
    completion = asyncio.run(pieces(policy, request))[-1].completion
    assert completion is not None
    return completion


@pytest.mark.parametrize("inside", [True, False], ids=["in its loop", "in another one"])
def test_what_is_told_is_the_turn_and_is_told_before_it(fake: Any, policy: VLLMPolicy, inside: bool) -> None:
    heard: list[Any] = []

    async def tell(piece: Any) -> None:
        await asyncio.sleep(0)  # as where a client takes its time
        heard.append(piece)

    request = asked(3)
    turn = policy.run_in_loop(policy.told(request, tell)) if inside else asyncio.run(policy.told(request, tell))
    exactly(fake, request, turn)
    assert len(heard) > 1
    assert np.array_equal(np.concatenate([piece.ids_T for piece in heard]), turn.ids_T)


@pytest.mark.parametrize("inside", [True, False], ids=["in its loop", "in another one"])
def test_who_does_not_take_a_piece_ends_the_turn(policy: VLLMPolicy, inside: bool) -> None:
    heard: list[Any] = []

    async def tell(piece: Any) -> None:
        heard.append(piece)
        raise BrokenPipeError("the client is gone")

    turn = policy.told(asked(3), tell)
    with pytest.raises(BrokenPipeError, match="the client is gone"):
        policy.run_in_loop(turn) if inside else asyncio.run(turn)
    assert len(heard) == 1
    assert policy.retries == 0


def test_a_batch_one_by_one_and_a_stream_give_the_ids_that_the_engine_drew(fake: Any, policy: VLLMPolicy) -> None:
    assert isinstance(policy, Policy)
    requests = [asked(seed) for seed in range(8)] + [asked(3, max_tokens=5)]
    for request, turn in zip(requests, policy.generate(requests), strict=True):
        exactly(fake, request, turn)
        assert isinstance(turn, Completion)
        assert turn.logprobs_T is not None
        exactly(fake, request, policy.answer(request))
        told = asyncio.run(pieces(policy, request))
        exactly(fake, request, told[-1].completion)
        assert np.array_equal(np.concatenate([piece.ids_T for piece in told]), turn.ids_T)
        assert np.array_equal(np.concatenate([piece.logprobs_T for piece in told[:-1]]), turn.logprobs_T)
    assert policy.retries == 0


def test_every_sampling_parameter_is_sent_with_a_seed_of_its_own(fake: Any, policy: VLLMPolicy) -> None:
    policy.generate([asked(7, temperature=0.5, top_p=0.9, top_k=3), asked(8)])
    first, second = sorted(fake.asked[-2:], key=lambda params: params["seed"])
    assert (first["temperature"], first["top_p"], first["top_k"], first["seed"]) == (0.5, 0.9, 3, 7)
    assert (second["temperature"], second["top_p"], second["top_k"], second["seed"]) == (1, 1, -1, 8)
    for params in (first, second):
        assert params["ids"] == IDS_T.tolist()
        assert params["stop_token_ids"] == list(BUILTIN.stop_ids)
        neutral = {"min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "min_tokens": 0}
        assert {name: params[name] for name in neutral} == neutral
        assert params["ignore_eos"]
        assert params["skip_special_tokens"] is False
        assert params["max_tokens"] == 64


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("stop", ["</action>", "on>", "ction>"])
def test_a_turn_that_a_stop_string_ended_is_exact(fake: Any, policy: VLLMPolicy, stop: str, *, stream: bool) -> None:
    request = asked(5, stop=(stop, "never said"))
    turn = drawn(policy, request, stream=stream)
    sent = fake.asked[-1]
    assert (sent["stop"], sent["include_stop_str_in_output"]) == ([stop, "never said"], True)
    ids, logprobs, finish = fake.draw(IDS_T.tolist(), sent)
    assert finish == "stop"
    assert ids[-1] not in BUILTIN.stop_ids
    assert (turn.ids_T.tolist(), turn.ids_exact, turn.finish_reason, turn.note) == (ids, True, "stop", "")
    assert turn.logprobs_T is not None
    assert turn.logprobs_T.tolist() == logprobs
    assert BUILTIN.decode(turn.ids_T).endswith(stop)


@pytest.mark.parametrize(
    ("change", "note"),
    [(1, "it goes on behind a stop string"), (-1, "it stopped, and its last id is no stop token and completes no")],
)
def test_a_turn_that_a_stop_string_does_not_end_is_marked(
    fake: Any, policy: VLLMPolicy, monkeypatch: pytest.MonkeyPatch, change: int, note: str
) -> None:
    whole, _, _ = fake.draw(IDS_T.tolist(), {"seed": 5, "stop_token_ids": BUILTIN.stop_ids, "max_tokens": 64})
    ended, _ = fake.stopped(whole, ("<action>",))
    monkeypatch.setattr(fake, "stopped", lambda ids, stop: (whole[: len(ended) + change], True))
    turn = policy.answer(asked(5, stop=("<action>",)))
    assert turn.ids_T.tolist() == whole[: len(ended) + change]
    assert (turn.ids_exact, turn.logprobs_T, turn.note.startswith(note)) == (False, None, True)


def test_weight_versions_are_kept_as_runs(fake: Any) -> None:
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        for stream in STREAMS:
            turn = drawn(policy, asked(1), stream=stream)
            half = len(turn.ids_T) // 2
            assert turn.weight_versions == (("a", 0, half), ("b", half, len(turn.ids_T)))


@pytest.mark.parametrize(
    ("fault", "stream"), [*((fault, False) for fault in TRANSIENT), ("500", True), ("429", True), ("html", True)]
)
def test_a_failure_that_passes_is_asked_again_with_the_same_seed(
    fake: Any, policy: VLLMPolicy, at_once: None, fault: str, *, stream: bool
) -> None:
    fake.fault = lambda seed, attempt: fault if attempt < 2 else None
    exactly(fake, asked(5), drawn(policy, asked(5), stream=stream))
    assert fake.tries[5] == 3
    assert policy.retries == 2
    fake.fault = lambda seed, attempt: fault
    with pytest.raises(TransientPolicyError):
        drawn(policy, asked(6), stream=stream)
    assert fake.tries[6] == 4


@pytest.mark.parametrize("fault", ["reset", "cut", "twice", "shape", "error", "no_finish"])
def test_a_stream_that_breaks_after_its_first_piece_is_an_error(fake: Any, policy: VLLMPolicy, fault: str) -> None:
    fake.fault = lambda seed, attempt: fault
    with pytest.raises(TransientPolicyError, match="the stream broke"):
        asyncio.run(pieces(policy, asked(5)))
    assert fake.tries[5] == 1


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    ("fault", "kind"), [("sentinel", "sentinel"), ("no_logprobs", "missing")], ids=["sentinel", "none"]
)
def test_missing_log_probabilities_are_marked_and_the_ids_kept(
    fake: Any, policy: VLLMPolicy, fault: str, kind: str, *, stream: bool
) -> None:
    fake.fault = lambda seed, attempt: fault
    turn = drawn(policy, asked(5), stream=stream)
    assert (turn.logprobs, turn.ids_exact, turn.ids_T[-1]) == (kind, True, BUILTIN.stop_ids[0])


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("stop_lost", "no stop token|that were drawn"), ("control_lost", "of other ids"), ("no_ids", "no ids")],
)
def test_ids_that_may_be_others_are_kept_and_marked_with_the_reason(
    fake: Any, policy: VLLMPolicy, fault: str, reason: str, at_once: None, *, stream: bool
) -> None:
    fake.fault = lambda seed, attempt: fault
    asked_T = asked(5)
    if fault == "no_ids" and fake.paths == {GENERATE}:
        with pytest.raises(PolicyError, match="holds no ids"):
            drawn(policy, asked_T, stream=stream)
        return
    if fault == "stop_lost" and stream:
        with pytest.raises(PolicyError, match="leaves some out"):
            drawn(policy, asked_T, stream=stream)
        return
    turn = drawn(policy, asked_T, stream=stream)
    assert (turn.ids_exact, turn.logprobs_T) == (False, None)
    params = {"seed": 5, "stop_token_ids": BUILTIN.stop_ids, "max_tokens": 64}
    ids, _, _ = fake.draw(IDS_T.tolist(), params)
    text = BUILTIN.decode(as_ids(ids[:-1]))
    expected = {"stop_lost": ids[:-1], "control_lost": ids[1:], "no_ids": BUILTIN.encode_turn(text).tolist()}
    assert turn.ids_T.tolist() == expected[fault]
    assert any(words in turn.note for words in reason.split("|"))
    assert turn.engine == policy.engine


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("longer_prompt", "read other ids than were sent"),
        ("odd_finish", "content_filter"),
        ("foreign_id", "outside the vocabulary"),
        ("400", "refuses the request"),
    ],
)
def test_what_no_retry_mends_is_an_error_at_once(
    fake: Any, policy: VLLMPolicy, fault: str, words: str, *, stream: bool
) -> None:
    fake.fault = lambda seed, attempt: fault
    with pytest.raises((PolicyError, ValueError), match=words) as caught:
        drawn(policy, asked(5), stream=stream)
    assert not isinstance(caught.value, TransientPolicyError)
    assert fake.tries[5] == 1


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_the_ids_that_the_engine_says_it_read_are_compared(fake: Any, path: str, *, stream: bool) -> None:
    fake.paths = {path}
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        fake.fault = lambda seed, attempt: "wrong_prompt"
        with pytest.raises(PolicyError, match=f"other ones from place {len(IDS_T) - 1} on"):
            drawn(policy, asked(5), stream=stream)


def test_versions_that_do_not_fit_the_ids_are_an_error(fake: Any) -> None:
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        fake.fault = lambda seed, attempt: "bad_versions"
        with pytest.raises(PolicyError, match="weight versions do not fit"):
            policy.answer(asked(5))


def test_one_failure_costs_one_turn_of_a_batch(fake: Any, policy: VLLMPolicy) -> None:
    fake.fault = lambda seed, attempt: "400" if seed == 3 else None
    answers = policy.generate([asked(seed) for seed in range(6)])
    for seed, answer in enumerate(answers):
        if seed == 3:
            assert isinstance(answer, PolicyError)
        else:
            exactly(fake, asked(seed), answer)
        assert fake.tries[seed] == (2 if seed == 1 else 1)  # 1 is the seed of the first token, too


def test_the_chat_endpoint_refuses_a_context_that_its_tokenizer_would_not_choose(fake: Any) -> None:
    fake.paths = {CHAT}
    odd_T = as_ids([index for sign in "You see a mug." for index in BUILTIN.encode(sign).tolist()])
    assert odd_T.tolist() != BUILTIN.encode("You see a mug.").tolist()
    with VLLMPolicy(fake.url, BUILTIN) as policy, pytest.raises(PolicyError, match="read other ids than were sent"):
        policy.answer(Request(odd_T))


def test_a_context_without_room_ends_as_truncated(fake: Any) -> None:
    fake.models = {"tiny": len(IDS_T) + 4}
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        turn = policy.answer(asked(5))
        assert (len(turn.ids_T), turn.finish_reason) == (4, "truncated")
        full = policy.answer(Request(as_ids([*IDS_T.tolist(), 5, 5, 5, 5])))
        assert (len(full.ids_T), full.finish_reason) == (0, "truncated")


def test_the_best_endpoint_is_used_and_said(fake: Any) -> None:
    with VLLMPolicy(f"{fake.url}/v1#tiny", BUILTIN) as policy:
        assert f"{GENERATE}, log-probabilities raw, context 4,096" in policy.describe()
    fake.paths = {COMPLETIONS, CHAT}
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        assert f"not {GENERATE}: status 404" in policy.describe()
        assert policy.answer(asked(1)).engine == "vllm 0.32.0 tiny /v1/completions"


def test_endpoints_without_exact_ids_are_passed_over(fake: Any, at_once: None) -> None:
    fake.fault = lambda seed, attempt: ("shape", "shape", "shape", "shape", "no_ids", "longer_prompt")[attempt]
    with pytest.raises(PolicyError, match="no endpoint that returns exact ids") as caught:
        VLLMPolicy(fake.url, BUILTIN)
    assert all(path in str(caught.value.got) for path in PATHS)


def test_processed_log_probabilities_are_found_out(fake: Any) -> None:
    fake.processed = True
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        assert policy.answer(asked(1)).logprobs == "processed"
    fake.processed, fake.fault = False, lambda seed, attempt: "no_logprobs" if seed == 1 else None
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        assert policy.answer(asked(2)).logprobs == "missing"  # nobody could say what they are of


def test_an_engine_that_dies_at_its_first_token_is_found_out(fake: Any, at_once: None) -> None:
    fake.fault = lambda seed, attempt: "500"
    with pytest.raises(PolicyError, match="EngineDeadError"):
        VLLMPolicy(fake.url, BUILTIN)


def test_models_and_tokenizers_that_do_not_fit_are_named(fake: Any) -> None:
    with pytest.raises(UnknownName, match="did you mean tiny"):
        VLLMPolicy(f"{fake.url}#tinny", BUILTIN)
    fake.models = {"tiny": 4096, "large": 4096}
    with pytest.raises(ConfigError, match="must be named"):
        VLLMPolicy(fake.url, BUILTIN)
    fake.tokenizer_digit = 1
    with pytest.raises(FingerprintMismatch, match="another tokenizer"):
        VLLMPolicy(f"{fake.url}#large", BUILTIN)


def test_a_key_is_sent_and_never_shown(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY, "k-secret")
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        assert fake.headers[-1]["authorization"] == "Bearer k-secret"
        fake.fault = lambda seed, attempt: "400"
        (answer,) = policy.generate([asked(5)])
    assert "your key is ***" in str(answer)
    assert "k-secret" not in str(answer) + repr(answer) + policy.describe()


def test_policies_are_found_by_name(fake: Any) -> None:
    policy = load_policy(f"vllm:{fake.url}#tiny", BUILTIN)
    assert isinstance(policy, VLLMPolicy)
    assert policy.name == "vllm:tiny"
    policy.close()
    with pytest.raises(PolicyError, match="is closed"):
        policy.answer(asked(1))
