"""A model in this process streams too: token by token, in one batch with others, and it stops where nobody listens."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from proxying import CHAT, CHAT_PATH, until

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="the extra torch is not installed")


@pytest.fixture
def policy(save_qwen2: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from agentgym_tok.policies.hf import HFPolicy

    monkeypatch.setattr(CHAT, "stop_ids", ())  # turns as long as they are asked for
    return HFPolicy(save_qwen2(tmp_path / "model", max_position_embeddings=2048), CHAT, device="cpu")


def body(tokens: int, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens, **more}


def test_tokens_come_as_they_are_drawn_and_are_those_of_the_turn(proxied: Callable[..., Any], policy: Any) -> None:
    with proxied(policy) as at:
        with at.client.http.stream("POST", CHAT_PATH, json=body(24, stream=True, return_token_ids=True)) as response:
            lines = [line for line in response.iter_lines() if '"token_ids"' in line]
        (turn,) = at.end().turns
    assert len(lines) > 5
    assert turn.used
    assert len(turn.completion.ids_T) == 24


def test_a_client_that_leaves_stops_its_turn_and_no_other(proxied: Callable[..., Any], policy: Any) -> None:
    with proxied(policy) as at, ThreadPoolExecutor(1) as threads:
        other = threads.submit(at.agent(at.session).http.post, CHAT_PATH, json=body(40))
        with at.client.http.stream("POST", CHAT_PATH, json=body(1500, stream=True)) as response:
            next(response.iter_lines())
        assert other.result().status_code == 200
        assert until(lambda: at.client.http.get("/health").json()["in_flight"] == 0)
        drawn = policy.computed_tokens
        assert until(lambda: not policy._weights.locked())
        assert policy.computed_tokens - drawn < 10
        turns = at.end().turns
    left = [turn for turn in turns if turn.completion.finish_reason == "abort"]
    assert [turn.used for turn in left] == [False]
    assert len(left[0].completion.ids_T) < 1500
