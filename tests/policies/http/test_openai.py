"""Servers of text: their turns work, and say that their ids are a guess; llama.cpp's ids are exact."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra engines is not installed")

from starlette.applications import Starlette
from starlette.requests import Request as Call
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.errors import PolicyError
from agentgym_tok.harness import Harness
from agentgym_tok.policies.http.openai import OpenAIPolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import RunMeta, TraceStore, account, verify

BUILTIN = ChatFormat.builtin()
META = RunMeta(fingerprint=BUILTIN.fingerprint, vocab_size=BUILTIN.vocab_size, chat="builtin")
IDS_T = BUILTIN.open([{"role": "user", "content": "You see a mug 1."}]).ids
TURN = "<action>look</action>"
ODD = [index for sign in TURN for index in BUILTIN.encode(sign).tolist()] + [BUILTIN.stop_ids[0]]
ASKED = Request(IDS_T, Sampling(max_tokens=64, temperature=0.5, top_p=0.9, top_k=4), seed=2**62 + 5)

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def served(serve: Any, path: str, answer: Answer, seen: list[dict[str, Any]], *, strict: bool = False) -> str:
    async def respond(call: Call) -> Response:
        body = json.loads(await call.body())
        if strict and "min_p" in body:
            return JSONResponse({"error": {"message": "unknown parameter min_p"}}, 400)
        seen.append(body)
        return Response(json.dumps(answer(body)), media_type="application/json")

    return str(serve(Starlette(routes=[Route(path, respond, methods=["POST"])])))


def of_llama_cpp(body: dict[str, Any]) -> dict[str, Any]:
    ids = ODD[: body["n_predict"]]
    probabilities = [{"id": index, "token": "", "logprob": -0.25, "top_logprobs": []} for index in ids]
    stop = "eos" if len(ids) == len(ODD) else "limit"
    count = len(body["prompt"])
    return {"tokens": ids, "stop_type": stop, "tokens_evaluated": count, "completion_probabilities": probabilities}


def of_ollama(body: dict[str, Any]) -> dict[str, Any]:
    return {"response": TURN, "done": True, "done_reason": "stop"}


def of_completions(body: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": TURN, "finish_reason": "stop"}]}


TEXTS = [("/api/generate", of_ollama, False), ("/v1/completions", of_completions, False)]


def test_llama_cpp_takes_and_returns_ids_under_the_requested_parameters(serve: Any) -> None:
    seen: list[dict[str, Any]] = []
    with OpenAIPolicy(served(serve, "/completion", of_llama_cpp, seen), BUILTIN) as policy:
        assert "exact ids" in policy.describe()
        turn = policy.answer(ASKED)
    assert (turn.ids_T.tolist(), turn.ids_exact, turn.finish_reason, turn.logprobs) == (ODD, True, "stop", "raw")
    assert turn.logprobs_T is not None
    assert set(turn.logprobs_T.tolist()) == {-0.25}
    body = seen[-1]
    assert body["prompt"] == IDS_T.tolist()
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.5, 0.9, 4, 0)
    assert body["samplers"] == ["temperature", "top_k", "top_p"]
    assert 0 <= body["seed"] < 2**32


@pytest.mark.parametrize(
    ("change", "exact", "kind"),
    [
        ({"completion_probabilities": []}, True, "missing"),
        ({"completion_probabilities": [{"id": 5, "logprob": -1.0}] * len(ODD)}, True, "missing"),
        ({"tokens": ODD[:-1]}, False, "missing"),
    ],
)
def test_llama_cpp_evidence_that_does_not_fit_is_marked(
    serve: Any, change: dict[str, Any], kind: str, *, exact: bool
) -> None:
    answers: list[dict[str, Any]] = [{}, change]
    url = served(serve, "/completion", lambda body: of_llama_cpp(body) | answers.pop(0), [])
    with OpenAIPolicy(url, BUILTIN) as policy:
        turn = policy.answer(ASKED)
    assert (turn.ids_exact, turn.logprobs) == (exact, kind)


@pytest.mark.parametrize("change", [{"tokens_evaluated": 1}, {"truncated": True}])
def test_a_prompt_that_llama_cpp_changed_is_an_error(serve: Any, change: dict[str, Any]) -> None:
    answers: list[dict[str, Any]] = [{}, change]
    url = served(serve, "/completion", lambda body: of_llama_cpp(body) | answers.pop(0), [])
    with OpenAIPolicy(url, BUILTIN) as policy, pytest.raises(PolicyError, match="read other ids than were sent"):
        policy.answer(ASKED)


@pytest.mark.parametrize(("path", "answer", "strict"), TEXTS)
def test_turns_of_text_are_marked_inexact_with_the_reason(
    serve: Any, path: str, answer: Answer, at_once: None, *, strict: bool
) -> None:
    seen: list[dict[str, Any]] = []
    with OpenAIPolicy(f"{served(serve, path, answer, seen, strict=strict)}/v1#small", BUILTIN) as policy:
        assert "every turn is inexact" in policy.describe()
        turn = policy.answer(ASKED)

        async def streamed() -> list[Any]:
            return [piece async for piece in policy.stream(ASKED)]

        assert asyncio.run(streamed())[-1].completion.ids_T.tolist() == turn.ids_T.tolist()
    assert turn.ids_T.tolist() == BUILTIN.encode_turn(TURN).tolist()
    assert (turn.ids_exact, turn.logprobs, turn.finish_reason) == (False, "missing", "stop")
    assert turn.note == "ids encoded from text"
    body = seen[-1]
    given = body.get("options", body)
    assert (given["temperature"], given["top_p"], given["top_k"], given["min_p"]) == (0.5, 0.9, 4, 0)
    assert body["prompt"] == BUILTIN.decode(IDS_T)
    assert body["model"] == "small"
    assert BUILTIN.token_text(BUILTIN.stop_ids[0]) in given["stop"]


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_text_is_read_up_to_the_first_stop_string(serve: Any, finish: str) -> None:
    said = "a <search> q </search> and then </answer> on"
    seen: list[dict[str, Any]] = []
    url = served(serve, "/v1/completions", lambda _: {"choices": [{"text": said, "finish_reason": finish}]}, seen)
    with OpenAIPolicy(url, BUILTIN) as policy:
        turn = policy.answer(Request(IDS_T, Sampling(stop=("</answer>", "</search>"))))
        plain = policy.answer(Request(IDS_T, Sampling(stop=("</other>",))))
    assert (BUILTIN.decode(turn.ids_T), turn.finish_reason) == ("a <search> q </search>", "stop")
    assert plain.ids_T.tolist() == [*BUILTIN.encode(said).tolist(), *BUILTIN.stop_ids[: finish == "stop"]]
    assert plain.finish_reason == finish
    # A server would cut the string off, and not say which of them it was.
    assert not {"</answer>", "</search>"} & set(seen[-1]["stop"])


@pytest.mark.parametrize(("cut", "exact"), [(1, True), (2, False)])
def test_llama_cpp_keeps_the_ids_of_a_stop_string(serve: Any, cut: int, *, exact: bool) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        whole = of_llama_cpp(body)
        if not body["stop"]:
            return whole
        # As the server does: the string's ids stay, their log-probabilities go.
        ids = ODD[:-cut]
        return whole | {"tokens": ids, "stop_type": "word", "completion_probabilities": [{"id": ids[0], "logprob": -1}]}

    seen: list[dict[str, Any]] = []
    with OpenAIPolicy(served(serve, "/completion", answer, seen), BUILTIN) as policy:
        turn = policy.answer(Request(IDS_T, Sampling(max_tokens=64, stop=("</action>",))))
    assert seen[-1]["stop"] == ["</action>"]
    assert (turn.ids_T.tolist(), turn.ids_exact, turn.finish_reason, turn.logprobs) == (
        ODD[:-cut],
        exact,
        "stop",
        "missing",
    )
    assert bool(turn.note) is not exact


def test_a_server_that_knows_fewer_parameters_refuses_what_it_cannot_do(serve: Any) -> None:
    url = served(serve, "/v1/completions", of_completions, [], strict=True)
    with OpenAIPolicy(f"{url}#small", BUILTIN) as policy:
        assert "unknown parameter min_p" in policy.describe()
        assert policy.answer(Request(IDS_T)).ids_exact is False
        (refused,) = policy.generate([ASKED])
    assert "top_k=4" in str(refused)


def test_a_cut_text_gets_no_stop_token_and_lone_surrogates_are_replaced(serve: Any) -> None:
    def cut(body: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [{"text": "a\ud800b", "finish_reason": "length"}]}

    with OpenAIPolicy(served(serve, "/v1/completions", cut, []), BUILTIN) as policy:
        turn = policy.answer(Request(IDS_T))
    assert (BUILTIN.decode(turn.ids_T), turn.finish_reason) == ("a\N{REPLACEMENT CHARACTER}b", "length")


def test_other_ends_and_servers_without_completions_are_errors(serve: Any, at_once: None) -> None:
    answers = ["stop", "content_filter"]
    url = served(serve, "/v1/completions", lambda _: {"choices": [{"text": "", "finish_reason": answers.pop(0)}]}, [])
    with OpenAIPolicy(url, BUILTIN) as policy, pytest.raises(PolicyError, match="content_filter"):
        policy.answer(Request(IDS_T))
    with pytest.raises(PolicyError, match="completes no text"):
        OpenAIPolicy(served(serve, "/v1/chat/completions", of_completions, []), BUILTIN)


def test_a_bos_is_left_to_the_server(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(BUILTIN, "bos_id", int(IDS_T[0]))
    with OpenAIPolicy(served(serve, "/v1/completions", of_completions, seen), BUILTIN) as policy:
        policy.answer(Request(IDS_T))
        policy.answer(Request(as_ids(IDS_T[1:])))
    assert seen[-2]["prompt"] == seen[-1]["prompt"] == BUILTIN.decode(IDS_T[1:])


def test_episodes_of_text_are_logged_and_never_trained(serve: Any, tmp_path: Path) -> None:
    with (
        OpenAIPolicy(served(serve, "/v1/completions", of_completions, []), BUILTIN) as policy,
        TraceStore(tmp_path, meta=META) as store,
    ):
        harness = Harness(policy, BUILTIN, store=store)
        episodes = harness.run_many(lambda: ALFWorldEnv(BUILTIN, split="valid_seen", max_steps=3), range(4))
    counts = account(episodes)
    assert counts.trained == 0
    assert set(counts.masked) == {"inexact_ids"}
    assert all(isinstance(turn.completion, Completion) for episode in episodes for turn in episode.turns)
    assert verify(tmp_path, BUILTIN).ok
