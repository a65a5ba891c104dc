"""What clients are told of ids is what the trace holds, and a stream that is not its turn is an error."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from proxying import CHAT, CHAT_PATH, Scripted

from agentgym_tok.types import Delta, Request

Proxy_ = Callable[..., Any]
ODD = [*CHAT.encode("h"), *CHAT.encode("ello"), CHAT.stop_ids[0]]
USER = {"role": "user", "content": "Say hello."}


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_is_told_the_ids_of_the_trace(proxied: Proxy_, *, stream: bool) -> None:
    body = {"model": "m", "messages": [USER], "return_token_ids": True, "logprobs": True, "stream": stream}
    with proxied(lambda *_: ODD) as at:
        response = at.client.http.post(CHAT_PATH, json=body)
        told = events(response.text) if stream else [response.json()]
        (turn,) = at.end().turns
    assert told[0]["prompt_token_ids"] == turn.context.ids.tolist()
    ids = [index for one in told for index in one["choices"][0].get("token_ids", [])]
    assert ids == turn.completion.ids_T.tolist() == ODD
    assert "return_token_ids" not in turn.facts.get("ignored", ())
    assert not any("drift" in one for one in told)


def test_an_edit_is_named_to_every_client(proxied: Proxy_) -> None:
    answer = {"role": "assistant", "content": "hello"}
    with proxied(lambda *_: ODD) as at:
        at.client.ask([{"role": "system", "content": "Be brief."}, USER])
        edited = at.client.ask([{"role": "system", "content": "Be long."}, USER, answer, USER])
        turns = at.end().turns
    assert edited["drift"] == ["system_swap"]
    assert turns[1].edge.kind == "system_swap"
    assert "prompt_token_ids" not in edited


class Guessing(Scripted):
    """Say after the first id that the others are guessed."""

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        first = True
        async for delta in super().stream(request):
            if delta.completion is not None:
                yield replace(delta, completion=replace(delta.completion, ids_exact=False, note="no ids"))
            elif first:
                yield delta
                first = False


@pytest.mark.parametrize("stream", [False, True])
def test_guessed_ids_are_told_as_none_and_named(proxied: Proxy_, *, stream: bool) -> None:
    body = {"model": "m", "messages": [USER], "return_token_ids": True, "stream": stream}
    with proxied(Guessing(lambda *_: "hello")) as at:
        response = at.client.http.post(CHAT_PATH, json=body)
        told = events(response.text) if stream else [response.json()]
        (turn,) = at.end().turns
    assert [one["drift"] for one in told if "drift" in one] == [["stream_loss"]]
    assert [one["choices"][0]["token_ids"] for one in told if "token_ids" in one["choices"][0]] == (
        [turn.completion.ids_T[:1].tolist()] if stream else [None]
    )
    assert not turn.completion.ids_exact


class Shifting(Scripted):
    """Tell a piece that the turn does not begin with."""

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        yield Delta(CHAT.encode("HA"), None)
        async for delta in super().stream(request):
            if delta.completion is not None:
                yield delta


def test_a_stream_that_is_not_its_turn_is_an_error_and_not_trained(proxied: Proxy_) -> None:
    with proxied(Shifting(lambda *_: "hello")) as at:
        response = at.client.http.post(CHAT_PATH, json={"model": "m", "messages": [USER], "stream": True})
        (turn,) = at.end().turns
    *_, last = events(response.text)
    assert last["error"]["message"] == "the engine failed: the turn is another one than its pieces"
    assert turn.failure is not None
    assert (turn.used, turn.completion.ids_T.tolist()) == (False, CHAT.encode("HA").tolist())
