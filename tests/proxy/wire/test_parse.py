"""Every body is a request or an error that names its field, and what a request says arrives unchanged."""

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentgym_tok.proxy.wire import WIRES, Ask, BadAsk, Image
from agentgym_tok.proxy.wire.anthropic import count_body, parse_count
from agentgym_tok.types import Message, Sampling, ToolCall

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
PNG = b"\x89PNG\r\n\x1a\n"
DATA_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
SOURCE = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
SHOWN = hashlib.sha256(PNG).hexdigest()
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "A wall.", "is_error": False}
SCHEMA = {"type": "object", "properties": {"where": {"type": "string"}}}
LOOK = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}

RICH: dict[str, dict[str, Any]] = {
    CHAT: {
        "model": "m",
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": DATA_URL}}], "name": "ann"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"where": "north"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "A wall."},
        ],
        "tools": [LOOK],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": -1,
        "max_completion_tokens": 64,
        "stop": "END",
        "n": 2,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "top_logprobs": 3,
        "seed": 7,
        "user": "u",
        "metadata": {"a": "b"},
        "response_format": {"type": "text"},
        "reasoning_effort": "low",
    },
    RESPONSES: {
        "model": "m",
        "instructions": "Be\nbrief.",
        "input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": DATA_URL, "detail": "auto"}]},
            {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"where": "north"}'},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "A wall."}]},
        ],
        "tools": [{"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA, "strict": True}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 64,
        "stream": True,
        "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
        "top_logprobs": 3,
        "user": "u",
        "metadata": {"a": "b"},
        "text": {"format": {"type": "text"}},
        "previous_response_id": "resp_1",
    },
    MESSAGES: {
        "model": "m",
        "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief.", "cache_control": {}}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image", "source": SOURCE}],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"where": "north"}},
                ],
            },
            {
                "role": "user",
                "content": [RESULT],
            },
        ],
        "tools": [
            {"name": "look", "description": "Look.", "input_schema": SCHEMA},
            {"type": "bash_20250124", "name": "bash"},
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 64,
        "stop_sequences": ["END", "END"],
        "stream": True,
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive"},
    },
}


PART = "messages[0].content[0]"


def parse(path: str, document: Any) -> Ask:
    return WIRES[path].parse(json.dumps(document).encode())


def refused(path: str, document: Any) -> BadAsk:
    with pytest.raises(BadAsk) as caught:
        parse(path, document)
    return caught.value


@pytest.mark.parametrize("path", RICH)
def test_the_same_request_is_the_same_ask_in_every_protocol(path: str) -> None:
    ask = parse(path, RICH[path])
    assert ask.messages == (
        Message("system", "Be\nbrief.", trusted=True),
        Message("user", "", images=(SHOWN,), name="ann" if path == CHAT else None),
        Message("assistant", "", reasoning="Hm.", tool_calls=(ToolCall("look", {"where": "north"}, "c1"),)),
        Message("tool", "A wall.", tool_call_id="c1", name="look"),
    )
    assert ask.tools == (LOOK,)
    assert list(ask.tools[0]["function"]) == ["name", "description", "parameters"]
    assert (ask.tool_choice, ask.tool_name, ask.parallel_tool_calls) == ("required", None, False)
    assert ask.images == (Image(SHOWN, "image/png", PNG),)
    assert (ask.stream, ask.include_usage, ask.user, ask.model) == (True, True, "u", "m")
    given = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64}
    assert ask.sampling.model_dump(include={*given}) == given
    assert ask.sampling.stop == (() if path == RESPONSES else ("END",))
    in_force = ask.sampling_over(Sampling(temperature=0.1, top_k=5, max_tokens=9))
    assert (in_force.temperature, in_force.max_tokens, in_force.top_k) == (0.5, 64, 0 if path == CHAT else 5)


def test_what_only_some_protocols_have_is_kept() -> None:
    chat, responses, messages = (parse(path, document) for path, document in RICH.items())
    assert (chat.n, chat.seed, chat.logprobs, chat.top_logprobs, dict(chat.metadata)) == (2, 7, True, 3, {"a": "b"})
    assert chat.ignored == ("reasoning_effort",)
    assert (responses.previous_response_id, responses.lead, responses.logprobs) == ("resp_1", 1, True)
    assert set(responses.ignored) >= {"tools[].strict", "include reasoning.encrypted_content"}
    assert messages.signatures == ((2, "sig"),)
    assert set(messages.ignored) >= {"thinking", "tools[] bash_20250124", "messages[].content[].cache_control"}


def test_only_system_messages_are_trusted() -> None:
    for path, document in RICH.items():
        assert {message.role for message in parse(path, document).messages if message.trusted} == {"system"}


def test_a_conversation_goes_on_from_an_earlier_answer() -> None:
    body = {"model": "m", "instructions": "New.", "previous_response_id": "resp_1"}
    body["input"] = [{"type": "function_call_output", "call_id": "c1", "output": "A wall."}]
    earlier = [Message("user", "Go on."), Message("assistant", "", tool_calls=(ToolCall("look", {}, "c1"),))]
    ask = parse(RESPONSES, body).after(earlier)
    assert [message.content for message in ask.messages] == ["New.", "Go on.", "", "A wall."]
    assert ask.messages[-1].name == "look"


def test_texts_and_results_of_a_message_keep_their_order() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "tool_result", "tool_use_id": "c1"},
        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "b"}]},
        {"type": "text", "text": "c"},
        {"type": "text", "text": "d"},
    ]
    ask = parse(MESSAGES, {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": blocks}]})
    read = [(one.role, one.content) for one in ask.messages]
    assert read == [("user", "a"), ("tool", ""), ("tool", "b"), ("user", "c\nd")]


def test_a_context_is_counted_without_a_limit() -> None:
    body = {name: RICH[MESSAGES][name] for name in ("model", "system", "messages")}
    assert len(parse_count(json.dumps(body).encode()).messages) == 4
    assert json.loads(count_body(7)) == {"input_tokens": 7}


def test_half_a_sign_becomes_a_mark_and_is_counted() -> None:
    message = rb'{"role": "user", "content": "a\ud83d \ud83e\udd16"}'
    body = rb'{"model": "m", "messages": [' + message + rb'], "x": {"\udd16": ["\udd16"]}}'
    ask = WIRES[CHAT].parse(body)
    assert ask.messages[0].content == "a\ufffd 🤖"
    assert ask.replaced == 3


@pytest.mark.parametrize(
    ("path", "fields", "where"),
    [
        (CHAT, {"messages": []}, "messages"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
            f"{PART}.text",
        ),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "file"}]}]}, PART),
        (CHAT, {"messages": [{"role": "function", "name": "f", "content": ""}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "tool", "content": ""}]}, "messages[0].tool_call_id"),
        (CHAT, {"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}, PART),
        (CHAT, {"temperature": "hot"}, "temperature"),
        (CHAT, {"temperature": -1}, "temperature"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
        (CHAT, {"max_completion_tokens": 5, "max_tokens": 6}, "max_tokens"),
        (CHAT, {"stop": list("abcde")}, "stop"),
        (CHAT, {"stop": ""}, "stop"),
        (CHAT, {"n": 0}, "n"),
        (CHAT, {"seed": -1}, "seed"),
        (CHAT, {"seed": 2**63}, "seed"),
        (CHAT, {"metadata": {"a": [float("nan")]}}, "metadata"),
        (CHAT, {"unheard_of": float("inf")}, "unheard_of"),
        (CHAT, {"messages": [{"role": "user", "content": "", "x": [float("nan")]}]}, "messages[0].x"),
        (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "x": float("nan")}}]}, "tools[0].function.x"),
        (CHAT, {"frequency_penalty": 0.5}, "frequency_penalty"),
        (CHAT, {"logit_bias": {"5": 1}}, "logit_bias"),
        (CHAT, {"response_format": {"type": "json_object"}}, "response_format"),
        (CHAT, {"tools": [LOOK, LOOK]}, "tools[1]"),
        (CHAT, {"tools": [{"type": "function"}]}, "tools[0].function"),
        (CHAT, {"tool_choice": {"type": "function", "function": {"name": "gone"}}}, "tool_choice"),
        (CHAT, {"functions": [{"name": "f"}]}, "functions"),
        (RESPONSES, {"input": []}, "input"),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        (RESPONSES, {"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        (RESPONSES, {"background": True}, "background"),
        (RESPONSES, {"conversation": "c"}, "conversation"),
        (RESPONSES, {"text": {"format": {"type": "json_schema"}}}, "text.format"),
        (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens"),
        (RESPONSES, {"seed": 2**63}, "seed"),
        (RESPONSES, {"metadata": {"a": float("-inf")}}, "metadata"),
        (
            RESPONSES,
            {"tools": [{"type": "function", "name": "f", "parameters": {"a": float("nan")}}]},
            "tools[0].parameters",
        ),
        (MESSAGES, {"max_tokens": 0}, "max_tokens"),
        (MESSAGES, {"metadata": {"user_id": "u", "a": float("nan")}}, "metadata.a"),
        (MESSAGES, {"tools": [{"name": "f", "input_schema": {"a": float("inf")}}]}, "tools[0].input_schema"),
        (MESSAGES, {"stop_sequences": [""]}, "stop_sequences"),
        (MESSAGES, {"output_config": {"format": {}}}, "output_config.format"),
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "document"}]}]}, PART),
        (MESSAGES, {"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        (MESSAGES, {"messages": [{"role": "user", "content": [RESULT, {"type": "image"}]}]}, "messages[0].content[1]"),
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, f"{PART}.tool_use_id"),
        (MESSAGES, {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]}]}, PART),
        (MESSAGES, {"tool_choice": {"type": "tool", "name": "gone"}}, "tool_choice"),
    ],
)
def test_what_would_change_the_meaning_is_refused_by_name(client: Any, path: str, fields: Any, where: str) -> None:
    if client.path != path:
        return
    with pytest.raises(BadAsk) as caught:
        WIRES[path].parse(client.ask(**fields))
    assert caught.value.where == where


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "data:text/html;base64,AA==", "data:image/png;base64,@@", "data:image/png,AA", "gopher://a"],
)
def test_only_images_and_links_are_images(url: str) -> None:
    content = [{"type": "image_url", "image_url": {"url": url}}]
    error = refused(CHAT, {"model": "m", "messages": [{"role": "user", "content": content}]})
    assert error.where == "messages[0].content[0].image_url.url"


def test_a_link_is_named_and_not_followed() -> None:
    url = "http://metadata.invalid/a.png"
    content = [{"type": "image_url", "image_url": {"url": url}}]
    (image,) = parse(CHAT, {"model": "m", "messages": [{"role": "user", "content": content}]}).images
    assert (image.url, image.body, image.sha256) == (url, None, hashlib.sha256(url.encode()).hexdigest())


def test_errors_have_the_shape_of_their_protocol() -> None:
    error = refused(CHAT, {"model": "m", "messages": []})
    for path in (CHAT, RESPONSES):
        body = json.loads(WIRES[path].error_body(400, error.what, str(error.where)))["error"]
        assert body == {"message": error.what, "type": "invalid_request_error", "param": "messages", "code": None}
    body = json.loads(WIRES[MESSAGES].error_body(429, "slowly", None))
    assert body == {"type": "error", "error": {"type": "rate_limit_error", "message": "slowly"}}
    codes = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded", 500: None}
    assert {code: json.loads(WIRES[CHAT].error_body(code, "no", None))["error"]["code"] for code in codes} == codes
    kinds = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 529: "overloaded_error"}
    assert {code: json.loads(WIRES[MESSAGES].error_body(code, "", None))["error"]["type"] for code in kinds} == kinds
    assert "hunter2" not in str(refused(CHAT, {"model": 5, "messages": [{"role": "user", "content": "hunter2"}]}))


jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["text", "user"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value of a document."""
    listed = enumerate(document) if isinstance(document, list) else ()
    inner = document.items() if isinstance(document, dict) else listed
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def replaced(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return the document with another value at a place."""
    if not place:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[place[0]] = replaced(document[place[0]], place[1:], value)
    return copy


def answered(read: Callable[[bytes], Ask], body: bytes) -> bool:
    """Say whether a body is a request, or refused with the name of a field; nothing else may come of it."""
    try:
        return isinstance(read(body), Ask)
    except BadAsk as error:
        return bool(error.where)


@settings(max_examples=200)
@given(path=st.sampled_from(list(RICH)), data=st.data(), value=jsons)
def test_a_request_with_anything_anywhere_is_an_ask_or_an_error(path: str, data: st.DataObject, value: Any) -> None:
    place = data.draw(st.sampled_from(places(RICH[path])))
    body = json.dumps(replaced(RICH[path], place, value)).encode()
    for read in (WIRES[path].parse, parse_count):
        assert answered(read, body)


@given(path=st.sampled_from(list(RICH)), body=st.binary() | jsons.map(lambda value: json.dumps(value).encode()))
@example(path=CHAT, body=b"[" * 100_000)
@example(path=CHAT, body=b'{"a": "\\u' + b"[" * 5000)
@example(path=CHAT, body=b'{"a": "\\ud83d", "b": ' + b"[" * 5000 + b"]" * 5000 + b"}")
@example(path=CHAT, body=b'{"a": "\\ud83d", "b": NaN}')
def test_any_bytes_are_an_ask_or_an_error(path: str, body: bytes) -> None:
    assert answered(WIRES[path].parse, body)


def test_arguments_nested_beyond_reason_stay_text() -> None:
    deep = '{"a": ' * 400 + "{}" + "}" * 400
    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": deep}}]
    ask = parse(CHAT, {"model": "m", "messages": [{"role": "assistant", "content": "", "tool_calls": calls}]})
    assert ask.messages[0].tool_calls[0].arguments is None
    assert ask.messages[0].tool_calls[0].raw == deep


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400"])
def test_arguments_with_a_number_that_is_none_stay_text(number: str) -> None:
    text = f'{{"a": [{number}]}}'
    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": text}}]
    ask = parse(CHAT, {"model": "m", "messages": [{"role": "assistant", "content": "", "tool_calls": calls}]})
    assert ask.messages[0].tool_calls == (ToolCall("look", None, "c", raw=text, status="invalid_json"),)


def test_what_clients_may_write_in_several_ways_is_read_in_each() -> None:
    assert (
        parse(
            CHAT,
            {
                "model": "m",
                "messages": [{"role": "user"}],
                "tools": [LOOK],
                "tool_choice": {"type": "function", "function": {"name": "look"}},
            },
        ).tool_name
        == "look"
    )
    choice = {"tools": [{"name": "look", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "look"}}
    talk = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "system", "content": "c"},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "d"}]},
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://a/b"}}]},
    ]
    ask = parse(MESSAGES, {"model": "m", "max_tokens": 1, "messages": talk, **choice})
    assert (ask.tool_choice, ask.tool_name) == ("tool", "look")
    assert [(one.role, one.content, one.trusted) for one in ask.messages] == [
        ("user", "a", False),
        ("assistant", "b", False),
        ("system", "c", True),
        ("assistant", "d", False),
        ("user", "", False),
    ]
    assert ask.images[0].url == "https://a/b"
    assert "messages[].content[] redacted_thinking" in ask.ignored
    none = parse(MESSAGES, {"model": "m", "max_tokens": 1, "messages": talk, "tool_choice": {"type": "none"}})
    assert none.tool_choice == "none"
    items = [
        {"role": "developer", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "d"}]},
    ]
    ask = parse(RESPONSES, {"model": "m", "input": items, "tool_choice": "none"})
    assert [(one.role, one.content, one.trusted) for one in ask.messages] == [
        ("system", "a", True),
        ("user", "b", False),
        ("assistant", "cd", False),
    ]
    assert parse(RESPONSES, {"model": "m", "input": "b"}).messages == (Message("user", "b"),)
