"""Whatever a turn says, in whatever pieces, its client reads that, and its echo is what the client sends back."""

import json
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxying import same_answer

from agentgym_tok.chat.deltas import CallArguments, CallBegun, CallEnded, ReasoningDelta, TextDelta, TurnDelta
from agentgym_tok.proxy.wire import (
    WIRES,
    Choice,
    Opening,
    Reply,
    TokenLogprob,
    Usage,
    WireStream,
    call_namer,
    echo,
    pieces_of,
    wire_id,
)
from agentgym_tok.types import AssistantMessage, ToolCall

words = st.text(st.sampled_from(' \n\u2028"\\{}:aé🤖data[DONE]'), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**60) | st.sampled_from([0.5, 1.0, -0.0, 1e300]) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(words, values, max_size=3)
IMPOSSIBLE = ('{"a": NaN}', '{"a": 1e999}')
arguments = st.tuples(objects.map(json.dumps), st.just("ok")) | st.tuples(
    st.sampled_from(["", " ", '{"a": ', "[1]", "{nor}", *IMPOSSIBLE, "[" * 3000, '{"a": "\\ud83d"}']) | words,
    st.sampled_from(["invalid_json", "malformed", "unclosed", "missing_name", "unknown_tool"]),
)


class Turn(NamedTuple):
    """Hold a turn in pieces, and its end."""

    deltas: list[TurnDelta]
    whole: AssistantMessage


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """Draw a turn; pieces of calls may come between others, calls may have no end, and without a name no beginning."""
    talk = st.builds(TextDelta, words) | st.builds(ReasoningDelta, words)
    lanes: list[list[TurnDelta]] = [draw(st.lists(talk, max_size=5))]
    calls = []
    for index, name in enumerate(draw(st.lists(st.sampled_from(["look", "wait", "look", ""]), max_size=3))):
        text, status = draw(arguments)
        calls.append(ToolCall(name, None, raw=text))
        lane: list[TurnDelta] = []
        if name:
            cut = draw(st.integers(0, len(text)))
            lane = [CallBegun(index, name, draw(st.sampled_from(["", "", "id:0"])))]
            lane += [CallArguments(index, text[:cut]), CallArguments(index, text[cut:])]
        if draw(st.booleans()) or status == "ok" or not name:
            lane.append(CallEnded(index, status))
        lanes.append(lane)
    deltas: list[TurnDelta] = []
    seen = 0  # calls begin in order
    while any(lanes):
        ready = [place for place, lane in enumerate(lanes) if lane and place <= seen + 1]
        place = draw(st.sampled_from(ready or [place for place, lane in enumerate(lanes) if lane][:1]))
        seen = max(seen, place)
        deltas.append(lanes[place].pop(0))
    return Turn(deltas, AssistantMessage("", tool_calls=tuple(calls)))


def opening(path: str) -> Opening:
    wire = WIRES[path]
    return Opening(wire_id(wire.reply_prefix, "s", 3), 1_700_000_000, "m", call_namer(wire.call_prefix, "s", 3), 12, 8)


def written(stream: WireStream, turn: Turn, finish: Any = "stop") -> bytes:
    pieces = [stream.start()]
    for delta in turn.deltas:
        pieces += [stream.add(delta), stream.ping()]
    return b"".join([*pieces, stream.close(finish, turn=turn.whole), stream.end(Usage(12, 5))])


def visible(text: str) -> list[str]:
    """Return the signs of a text in any order, without white space."""
    return sorted("".join(text.split()))


def is_object(text: str) -> bool:
    """Say whether a text is a JSON object, and not only Python's."""
    try:
        return isinstance(json.loads(text), dict) and text not in IMPOSSIBLE
    except (ValueError, RecursionError):
        return False


def expected(turn: Turn, *, objects: bool) -> tuple[str, list[tuple[str, str]]]:
    """Say what a client is to read, without looking at the code under test: texts and calls."""
    text = "".join(one.text for one in turn.deltas if isinstance(one, TextDelta))
    calls = []
    for index, call in enumerate(turn.whole.tool_calls):
        argued = call.raw
        ends = [one.status for one in turn.deltas if isinstance(one, CallEnded) and one.index == index]
        if call.name and not argued.strip(" \n") and ends not in ([], ["unclosed"]):
            argued += "{}"  # nothing is no JSON
        if call.name and (not objects or is_object(argued)):
            calls.append((call.name, argued))
        else:
            text += argued
    return text, calls


@settings(max_examples=60)
@given(turn=turns(), finish=st.sampled_from(["stop", "length", "truncated"]))
def test_a_client_reads_what_the_turn_says(client: Any, turn: Turn, finish: Any) -> None:
    wire, objects = WIRES[client.path], client.path == "/v1/messages"
    stream = wire.stream(wire.parse(client.ask(stream=True)), opening(client.path))
    read, said = client.read(written(stream, turn, finish)), stream.said()
    text, calls = expected(turn, objects=objects)
    assert visible(read.text) == visible(text)
    assert read.reasoning == "".join(one.text for one in turn.deltas if isinstance(one, ReasoningDelta))
    assert (said.content, said.reasoning or "") == (read.text, read.reasoning)
    if objects:
        one_way = [(name, json.dumps(json.loads(argued.replace("\\ud83d", "\ufffd")))) for name, argued in calls]
        assert sorted((name, argued) for _, name, argued in read.calls) == sorted(one_way)
    else:
        assert [(name, argued) for _, name, argued in read.calls] == calls
    assert len({id_ for id_, _, _ in read.calls}) == len(read.calls)
    assert read.finish == FINISHES[client.path][finish == "stop" and bool(read.calls), finish]


FINISHES = {
    "/v1/chat/completions": {(False, "stop"): "stop", (True, "stop"): "tool_calls"}
    | {(False, finish): "length" for finish in ("length", "truncated")},
    "/v1/responses": {(calls, "stop"): "completed" for calls in (False, True)}
    | {(False, finish): "incomplete" for finish in ("length", "truncated")},
    "/v1/messages": {
        (False, "stop"): "end_turn",
        (True, "stop"): "tool_use",
        (False, "length"): "max_tokens",
        (False, "truncated"): "model_context_window_exceeded",
    },
}


@settings(max_examples=60)
@given(turn=turns())
def test_an_answer_says_the_same_whole_and_in_pieces(client: Any, turn: Turn) -> None:
    wire = WIRES[client.path]
    head = opening(client.path)
    stream = wire.stream(wire.parse(client.ask(stream=True)), head)
    pieces = client.read(written(stream, turn))
    reply = Reply(head.id, head.created, head.model, (Choice(stream.said(), "stop"),), Usage(12, 5))
    whole = client.read(wire.reply_body(reply, wire.parse(client.ask())))
    assert whole[:2] == pieces[:2]
    assert whole.finish == pieces.finish
    assert [one[:2] for one in whole.calls] == [one[:2] for one in pieces.calls]
    assert [loosely(one[2]) for one in whole.calls] == [loosely(one[2]) for one in pieces.calls]


def loosely(text: str) -> Any:
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):
        return text


@settings(max_examples=60)
@given(turn=turns(), in_pieces=st.booleans())
def test_what_a_faithful_client_sends_back_is_the_echo(client: Any, turn: Turn, in_pieces: bool) -> None:
    wire = WIRES[client.path]
    head = opening(client.path)
    stream = wire.stream(wire.parse(client.ask(stream=True)), head)
    raw = written(stream, turn)
    choice = Choice(stream.said(), "stop")
    if not in_pieces:
        reply = Reply(head.id, head.created, head.model, (choice,), Usage(12, 5))
        raw = wire.reply_body(reply, wire.parse(client.ask()))
    back = wire.parse(client.again(client.read(raw))).messages[1]
    assert same_answer(echo(choice), back)


@pytest.mark.parametrize("text", IMPOSSIBLE)
def test_arguments_that_nobody_can_write_again_are_told_and_come_back_as_text(client: Any, text: str) -> None:
    wire = WIRES[client.path]
    stream = wire.stream(wire.parse(client.ask(stream=True)), opening(client.path))
    deltas: list[TurnDelta] = [CallBegun(0, "look"), CallArguments(0, text), CallEnded(0, "invalid_json")]
    raw = written(stream, Turn(deltas, AssistantMessage("")))
    said = echo(Choice(stream.said(), "stop"))
    back = wire.parse(client.again(client.read(raw))).messages[1]
    assert same_answer(said, back)
    assert [call.arguments for call in (*said.tool_calls, *back.tool_calls)] == [None] * 2 * len(said.tool_calls)
    assert text in (said.content, *(call.raw for call in said.tool_calls))


def test_a_turn_that_comes_whole_is_told_through_its_pieces(client: Any) -> None:
    calls = (ToolCall("look", {"a": "\ud83d é"}), ToolCall("", None, raw="{nor}"), ToolCall("look", {}, "id:0"))
    turn = AssistantMessage("Hm?", "Hm.", calls)
    wire = WIRES[client.path]
    stream = wire.stream(wire.parse(client.ask()), opening(client.path))
    for delta in pieces_of(turn):
        stream.add(delta)
    stream.close("stop", turn=turn)
    said = stream.said()
    assert (said.content, said.reasoning) == ("Hm?{nor}", "Hm.")
    ids = [opening(client.path).call_id(0, 0), "id:0"]
    assert [(call.name, call.id) for call in said.tool_calls] == [("look", ids[0]), ("look", "id:0")]
    half = {"/v1/messages": "\ufffd"}.get(client.path, "\ud83d")
    assert [call.arguments for call in said.tool_calls] == [{"a": f"{half} é"}, {}]


def test_choices_are_told_side_by_side() -> None:
    wire = WIRES["/v1/chat/completions"]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": ""}], "n": 2, "stream": True})
    stream = wire.stream(wire.parse(body.encode()), opening("/v1/chat/completions"))
    deltas = [(TextDelta("a"), 0), (CallBegun(0, "look"), 1), (TextDelta("b"), 0), (CallBegun(0, "look"), 0)]
    raw = b"".join(stream.add(delta, index) for delta, index in deltas)
    raw += stream.close("length", index=1) + stream.close("stop", index=0)
    choices = [json.loads(line[6:])["choices"][0] for line in raw.decode().split("\n\n") if line]
    assert [one["index"] for one in choices] == [0, 1, 0, 0, 1, 0]
    assert [one["finish_reason"] for one in choices][4:] == ["length", "tool_calls"]
    ids = {stream.said(index).tool_calls[0].id for index in (0, 1)}
    assert len(ids) == 2
    assert stream.said(0).content == "ab"


def test_logprobs_stand_on_the_pieces_and_on_the_whole(clients: Any) -> None:
    token = TokenLogprob("a", -0.5, b"a", (TokenLogprob("a", -0.5, b"a"), TokenLogprob("b", float("-inf"), b"b")))
    for path, asked in (
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 2}),
        ("/v1/responses", {"include": ["message.output_text.logprobs"], "top_logprobs": 2}),
    ):
        wire, head = WIRES[path], opening(path)
        ask = wire.parse(clients[path].ask(**asked))
        assert (ask.logprobs, ask.top_logprobs) == (True, 2)
        raw = wire.stream(ask, head).add(TextDelta("a"), logprobs=[token])
        choice = Choice(wire.stream(ask, head).said(), "stop", logprobs=(token,))
        whole = wire.reply_body(Reply(head.id, head.created, head.model, (choice,), Usage(1, 1)), ask)
        for said in (raw, whole):
            assert b'"logprob":-0.5' in said
            assert b'"logprob":-9999.0' in said


def test_tokens_are_counted_as_each_protocol_counts(clients: Any) -> None:
    counts = {
        "/v1/chat/completions": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
        "/v1/responses": {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17},
        "/v1/messages": {"input_tokens": 4, "cache_read_input_tokens": 8, "output_tokens": 5},
    }
    for path, expected_counts in counts.items():
        wire, head = WIRES[path], opening(path)
        fields = {"stream_options": {"include_usage": True}} if "chat" in path else {}
        ask = wire.parse(clients[path].ask(stream=True, **fields))
        stream = wire.stream(ask, head)
        begun, usage = stream.start() + stream.close("stop"), Usage(12, 5, cached=8, reasoning=2)
        whole = json.loads(wire.reply_body(Reply(head.id, 1, "m", (Choice(stream.said(), "stop"),), usage), ask))
        last = next(line for line in stream.end(usage).decode().split("\n") if '"usage":{' in line)
        streamed = json.loads(last.removeprefix("data: "))
        for document in (whole, streamed.get("response", streamed)):
            assert document["usage"].items() >= expected_counts.items()
        if path == "/v1/messages":
            assert b'"usage":{"input_tokens":4,' in begun


def test_no_block_is_blank_where_clients_drop_such_blocks(clients: Any) -> None:
    wire = WIRES["/v1/messages"]
    stream = wire.stream(wire.parse(clients["/v1/messages"].ask()), opening("/v1/messages"))
    call = [CallBegun(0, "look"), CallEnded(0, "ok")]
    deltas = [TextDelta("\n"), TextDelta(" a"), *call, TextDelta("\n"), CallBegun(1, "look"), CallEnded(1, "ok")]
    raw = b"".join(stream.add(delta) for delta in deltas) + stream.close("stop")
    kinds = re.findall(r'"content_block":{"type":"(\w+)"', raw.decode())
    assert kinds == ["text", "tool_use", "tool_use"]
    assert stream.said().content == "\n a"


def test_a_stop_string_is_named_where_the_protocol_can(clients: Any) -> None:
    wire = WIRES["/v1/messages"]
    stream = wire.stream(wire.parse(clients["/v1/messages"].ask()), opening("/v1/messages"))
    raw = stream.start() + stream.add(TextDelta("a")) + stream.close("stop", "END") + stream.end(Usage(1, 1))
    assert b'"delta":{"stop_reason":"stop_sequence","stop_sequence":"END"}' in raw


def test_a_stream_that_cannot_go_on_says_so(client: Any) -> None:
    wire = WIRES[client.path]
    stream = wire.stream(wire.parse(client.ask(stream=True)), opening(client.path))
    stream.start()
    stream.add(TextDelta("a"))
    data = json.loads(stream.fail(503, "the engine is away").partition(b"data: ")[2])
    error = data["response"]["error"] if client.path == "/v1/responses" else data["error"]
    assert error["message"] == "the engine is away"
