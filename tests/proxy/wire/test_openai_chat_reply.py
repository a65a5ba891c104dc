"""Ids stand where vLLM has them, drift stands beside them, and who asks for neither sees nothing of it."""

import json
from typing import Any

from agentgym_tok.chat.deltas import CallBegun, CallEnded, ReasoningDelta, TextDelta
from agentgym_tok.proxy.wire import WIRES, Choice, Opening, Reply, TokenLogprob, Usage, call_namer
from agentgym_tok.types import AssistantMessage

WIRE = WIRES["/v1/chat/completions"]
NEW = {"prompt_token_ids", "drift", "token_ids"}


def asked(clients: Any, **fields: Any) -> Any:
    return WIRE.parse(clients["/v1/chat/completions"].ask(**fields))


def opened(ask: Any, **fields: Any) -> Any:
    return WIRE.stream(ask, Opening("c", 1, "m", call_namer("call_", "s", 0), **fields))


def chunks(raw: bytes) -> list[Any]:
    found = [line.removeprefix("data: ") for line in raw.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(one) for one in found if one != "[DONE]"]


def test_ids_are_asked_for_by_vllms_name(clients: Any) -> None:
    ask = asked(clients, return_token_ids=True)
    assert (ask.token_ids, ask.ignored) == (True, ())
    assert not asked(clients, return_token_ids=False).token_ids


def test_a_whole_answer_tells_ids_and_drift_only_where_there_are_any(clients: Any) -> None:
    said = AssistantMessage("a")
    choices = (Choice(said, "stop", ids=(7, 8)), Choice(said, "stop", index=1))
    reply = Reply("c", 1, "m", choices, Usage(2, 2), (5, 6), ("system_swap",))
    document = json.loads(WIRE.reply_body(reply, asked(clients, n=2, return_token_ids=True)))
    assert (document["prompt_token_ids"], document["drift"]) == ([5, 6], ["system_swap"])
    assert [choice["token_ids"] for choice in document["choices"]] == [[7, 8], None]
    plain = json.loads(WIRE.reply_body(Reply("c", 1, "m", choices[:1], Usage(2, 2)), asked(clients)))
    assert not NEW & {*plain, *plain["choices"][0]}


def test_a_stream_tells_the_prompt_first_and_each_pieces_ids_once(clients: Any) -> None:
    stream = opened(asked(clients, stream=True, n=2, return_token_ids=True), prompt_ids=(5, 6), drift=("template",))
    raw = stream.start()
    token = TokenLogprob("a", -0.5, b"a")
    raw += stream.add(ReasoningDelta("hm"), ids=[1]) + stream.add(TextDelta("a"), 1, [token], [2])
    raw += stream.add(CallBegun(0, "look"), ids=[3, 4]) + stream.add(CallEnded(0, "ok"), ids=[9])
    raw += stream.close("stop", drift=("stop_token",)) + stream.close("stop", index=1) + stream.end(Usage(2, 5))
    told = chunks(raw)
    assert [chunk.get("prompt_token_ids") for chunk in told] == [[5, 6]] + [None] * (len(told) - 1)
    assert [chunk["drift"] for chunk in told if "drift" in chunk] == [["template"], ["stop_token"]]
    ids: list[list[int]] = [[], []]
    for chunk in told:
        for choice in chunk["choices"]:
            ids[choice["index"]] += choice.get("token_ids", [])
    assert ids == [[1, 3, 4, 9], [2]]
    with_text = next(chunk["choices"][0] for chunk in told if chunk["choices"][0]["delta"].get("content") == "a")
    assert with_text["token_ids"] == [2]
    assert with_text["logprobs"]["content"][0]["logprob"] == -0.5


def test_ids_of_a_piece_that_says_nothing_are_told(clients: Any) -> None:
    stream = opened(asked(clients, stream=True, return_token_ids=True))
    stream.add(CallBegun(0, "look"), ids=[1])
    (chunk,) = chunks(stream.add(TextDelta(""), ids=[2]))
    assert (chunk["choices"][0]["delta"], chunk["choices"][0]["token_ids"]) == ({}, [2])


def test_a_stream_that_is_asked_for_nothing_tells_nothing(clients: Any) -> None:
    stream = opened(asked(clients, stream=True))
    raw = stream.start() + stream.add(TextDelta("a")) + stream.close("stop") + stream.end(Usage(1, 1))
    assert not NEW & {name for chunk in chunks(raw) for name in {*chunk, *chunk["choices"][0]}}


def test_an_error_names_the_drift_that_it_is(clients: Any) -> None:
    for path in ("/v1/chat/completions", "/v1/responses"):
        assert json.loads(WIRES[path].error_body(502, "no", None, ("retokenised",)))["drift"] == ["retokenised"]
        assert "drift" not in json.loads(WIRES[path].error_body(502, "no"))
