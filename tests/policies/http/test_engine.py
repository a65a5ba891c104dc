"""One engine behind HTTP: deadlines hold, retries stay within their budget, and who hangs up stops the engine."""

import asyncio
import email.utils
import threading
import time
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra engines is not installed")

from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse
from uvicorn import Config

from agentgym_tok import ChatFormat, Request, Sampling
from agentgym_tok.errors import ConfigError, PolicyError
from agentgym_tok.policies.http.engine import _IDLE_S, HttpEngine, _retry_after
from agentgym_tok.policies.http.retry_budget import RetryBudget
from agentgym_tok.policies.http.vllm import VLLMPolicy

BUILTIN = ChatFormat.builtin()
IDS_T = BUILTIN.open([{"role": "user", "content": "Hello."}]).ids


def asked(seed: int, deadline: float | None = None) -> Request:
    return Request(IDS_T, Sampling(max_tokens=64), seed=seed, deadline=deadline)


def until(holds: Any) -> None:
    """Wait for what happens in another thread; a test that waits in vain runs into the limit of the whole run."""
    while not holds():
        time.sleep(0.01)


@given(st.lists(st.booleans(), max_size=200))
def test_retries_are_a_share_of_the_requests(storm: list[bool]) -> None:
    budget = RetryBudget(share=0.25, reserve=8)
    for retry in storm:
        if retry:
            budget.withdraw()
        else:
            budget.deposit()
        assert budget.retries <= 8 + 0.25 * storm.count(False)
    assert budget.retries + budget.refused == storm.count(True)


def test_a_storm_of_failures_is_no_storm_of_retries(fake: Any, at_once: None) -> None:
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        fake.fault = lambda seed, attempt: "500"
        answers = policy.generate([asked(seed) for seed in range(100, 300)])
        assert all(isinstance(answer, PolicyError) for answer in answers)
        assert sum(fake.tries.values()) - 1 - 200 == policy.retries <= 8 + 0.25 * 210
        fake.fault = lambda seed, attempt: None
        assert policy.answer(asked(1)).ids_exact


def test_a_connection_that_the_server_may_be_closing_is_not_used_again(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ports.append(scope["client"][1])
        await JSONResponse({})(scope, receive, send)

    engine = HttpEngine(serve(app))
    try:
        engine.loop.run(engine.ask("/"))
        engine.loop.run(engine.ask("/"))
        monkeypatch.setattr("agentgym_tok.policies.http.engine._IDLE_S", 0.02)
        hasty = HttpEngine(engine.url)
        try:
            hasty.loop.run(hasty.ask("/"))
            time.sleep(0.1)
            hasty.loop.run(hasty.ask("/"))
        finally:
            hasty.close()
    finally:
        engine.close()
    assert ports[0] == ports[1]
    assert len({*ports[1:]}) == 3
    assert Config(None).timeout_keep_alive > _IDLE_S


def test_no_more_requests_than_allowed_are_in_flight(fake: Any) -> None:
    with VLLMPolicy(fake.url, BUILTIN, concurrency=3) as policy:
        policy.generate([asked(seed) for seed in range(20)])
    assert fake.most_flying <= 3


def test_a_deadline_ends_a_slow_answer_and_the_engine_stops(fake: Any) -> None:
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        fake.fault = lambda seed, attempt: "slow" if seed == 5 else None
        slow, quick = policy.generate([asked(5, time.time() + 0.3), asked(6)])
        assert "its deadline passed" in str(slow)
        assert not isinstance(quick, Exception)
        (late,) = policy.generate([asked(7, time.time() - 1)])
        assert "its deadline passed" in str(late)
        assert fake.tries[7] == 0
    with VLLMPolicy(fake.url, BUILTIN, timeout_s=0.3) as policy:
        assert "none within 0.3 s" in str(policy.generate([asked(5)])[0])


def test_a_wait_beyond_the_deadline_is_not_begun(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fake_vllm import FAILURES

    monkeypatch.setitem(FAILURES, "429", (429, "{}", {"Retry-After": "1000"}))
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        fake.fault = lambda seed, attempt: "429"
        (answer,) = policy.generate([asked(5, time.time() + 100)])
        assert "status 429" in str(answer)
        assert fake.tries[5] == 1


def test_who_closes_a_stream_early_stops_the_engine(fake: Any) -> None:
    async def first_piece(policy: VLLMPolicy) -> None:
        stream: Any = policy.stream(asked(5))
        async for _ in stream:
            break
        await stream.aclose()

    with VLLMPolicy(fake.url, BUILTIN) as policy:
        fake.fault = lambda seed, attempt: "hang"
        asyncio.run(first_piece(policy))
        until(lambda: 5 in fake.hung_up)


def test_closing_the_policy_cancels_what_is_in_flight(fake: Any) -> None:
    policy = VLLMPolicy(fake.url, BUILTIN)
    fake.fault = lambda seed, attempt: "slow"
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            policy.generate([asked(5)])
        except BaseException as error:  # noqa: BLE001  # a cancelled future is no Exception
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: fake.tries[5] == 1)
    policy.close()
    policy.close()
    thread.join()
    assert len(caught) == 1


def test_many_threads_share_one_policy(fake: Any) -> None:
    with VLLMPolicy(fake.url, BUILTIN) as policy:
        turns: dict[int, list[int]] = {}
        threads = [
            threading.Thread(target=lambda seed=seed: turns.update({seed: policy.answer(asked(seed)).ids_T.tolist()}))
            for seed in range(10, 18)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert turns == {seed: policy.answer(asked(seed)).ids_T.tolist() for seed in range(10, 18)}


def test_a_server_that_is_not_there_is_named(at_once: None) -> None:
    with pytest.raises(PolicyError, match=r"connection to the engine broke.*Cannot connect"):
        VLLMPolicy("http://127.0.0.1:9", BUILTIN)


@pytest.mark.parametrize("url", ["", "tiny", "file:///etc", "http://", "http://me:word@127.0.0.1:9", "http://[::1"])
def test_what_is_no_address_is_refused_without_showing_credentials(url: str) -> None:
    with pytest.raises(ConfigError, match="no address of an engine") as caught:
        HttpEngine(url)
    assert "word" not in str(caught.value)


def test_retry_after_is_seconds_or_a_date() -> None:
    assert _retry_after("7") == 7
    assert _retry_after(email.utils.formatdate(time.time() - 60, usegmt=True)) == 0
    soon = _retry_after(email.utils.formatdate(time.time() + 1000, usegmt=True))
    assert soon is not None
    assert 900 < soon <= 1000
    assert _retry_after(None) is _retry_after("soon") is _retry_after("-1") is None
