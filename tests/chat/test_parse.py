"""Any ids can be read, and every part of a turn is found among its tokens."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.errors import UnknownName
from agentgym_tok.types import AssistantMessage

CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "désk"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look"}}, {"name": "wait"}]

fragments = st.sampled_from(
    [
        *["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "<|im_start|>", "\n", "é", "🤖"],
        *['{"name": "look", "arguments": {}}', '{"name":', "{", "}", "[1]", "null", "\\ud800", '"', "a b", "1" * 5000],
    ]
)
texts = st.lists(fragments, max_size=10).map("".join)


def encode(chat: ChatFormat, text: str, *, control: bool = True) -> list[int]:
    ids: list[int] = (chat._tokenizer.encode(text) if control else chat.encode(text)).tolist()
    return ids


def parse(chat: ChatFormat, text: str, tools: Any = None, *, stop: bool = True) -> AssistantMessage:
    return chat.parse([*encode(chat, text), *chat.stop_ids[:stop]], tools)


# ---- never raises


@given(st.lists(st.integers(0, 4095), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_ids_give_an_answer(builtin: ChatFormat, ids: list[int]) -> None:
    ids = [index % builtin.vocab_size for index in ids]
    read = builtin.parse(ids, TOOLS)
    assert read.closed is bool(ids and ids[-1] in builtin.stop_ids)
    read.message().to_dict()


@given(texts, st.booleans())
@settings(max_examples=200, deadline=None)
@example('<tool_call>{"name": "look", "arguments": ' + "[" * 3000, True)
@example("<tool_call>" + "1" * 5000 + "</tool_call>", True)
@example("<tool_call>" * 300, True)
def test_spans_hold_their_calls_and_nothing_else(builtin: ChatFormat, text: str, control: bool) -> None:
    ids = encode(builtin, text, control=control)
    read = builtin.parse([*ids, *builtin.stop_ids[:1]])
    place = 0
    for call in read.tool_calls:
        start, end = call.tokens
        assert place <= start < end <= len(ids)
        inside = builtin.decode(ids[start:end])
        opener, closer = inside.find("<tool_call>"), inside.rfind("</tool_call>")
        assert opener >= 0
        assert (closer >= 0) or call.status == "unclosed"
        body = inside[opener + len("<tool_call>") : closer if call.status != "unclosed" else None]
        assert body.strip() == call.raw
        # Without the first or the last of its tokens the block is no longer whole.
        assert not builtin.decode(ids[start + 1 : end])[opener:].startswith("<tool_call>" + body)
        place = start if control is False else end
    assert read.reasoning is None or read.reasoning in text


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_same_bytes_are_read_alike_however_tokens_cut_them(builtin: ChatFormat, data: st.DataObject) -> None:
    """A policy may sample any cut; only the bytes count."""
    text = "<think>\nHm é.\n</think>\nNow.\n" + CALL + "\nDone."
    table = builtin._tokenizer.token_bytes
    single = {entry[0]: index for index, entry in enumerate(table) if len(entry) == 1}
    cut = data.draw(st.integers(0, len(text.encode())))
    raw = text.encode()
    spelled = [single[byte] for byte in raw[:cut]]
    rest = raw[cut:]
    try:
        spelled += encode(builtin, rest.decode(), control=data.draw(st.booleans()))
    except UnicodeDecodeError:
        spelled += [single[byte] for byte in rest]
    read = builtin.parse(spelled)
    assert (read.reasoning, read.content) == ("Hm é.", "Now.\n\nDone.")
    (call,) = read.tool_calls
    assert (call.name, call.arguments, call.status) == ("look", {"at": "désk"}, "ok")
    assert builtin.decode(spelled[call.tokens[0] : call.tokens[1]]).strip() == CALL


# ---- what is read


def test_plain_text_is_content(chat: ChatFormat) -> None:
    read = parse(chat, " Hello.\n")
    assert read == AssistantMessage("Hello.")


def test_a_turn_without_a_stop_token_is_open(chat: ChatFormat) -> None:
    assert parse(chat, "Hello", stop=False) == AssistantMessage("Hello", closed=False)
    assert chat.parse([]) == AssistantMessage("", closed=False)
    assert chat.parse([chat.stop_ids[0]]) == AssistantMessage("")


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "closed"),
    [
        ("<think>\nHm.\n</think>\n\nNow.", "Hm.", "Now.", True),
        ("\n <think>Hm.</think>Now.", "Hm.", "Now.", True),
        ("Hm.\n</think>Now.", "Hm.", "Now.", True),  # the prompt had opened it
        ("<think></think>Now.", "", "Now.", True),
        ("<think>Hm, and", "Hm, and", "", False),
        ("<think>", "", "", False),
        ("Now. <think>Hm.", None, "Now. <think>Hm.", True),
        ("Now. <think>Hm.</think>Then.", None, "Now. <think>Hm.</think>Then.", True),
        ("Now. <tool_call></think>", None, "Now.", True),
        ("<think>a</think>b<think>c</think>d", "a", "b<think>c</think>d", True),
        ("<think>a<think>b</think>c", "a<think>b", "c", True),
    ],
)
def test_reasoning_is_kept_apart(
    builtin: ChatFormat, text: str, reasoning: str | None, content: str, closed: bool
) -> None:
    read = parse(builtin, text)
    assert (read.reasoning, read.content, read.reasoning_closed) == (reasoning, content, closed)


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "content"),
    [
        ("Hm.\n</think>Now.", None, "Hm.", "Now."),
        ("Hm.\n</think>Now.", True, "Hm.", "Now."),
        ("Hm.\n</think>Now.", False, None, "Hm.\n</think>Now."),
        ("Hm.", True, "Hm.", ""),
        ("<think>Hm.</think>Now.", False, "Hm.", "Now."),
        ("<think>Hm.</think>Now.", True, "Hm.", "Now."),
    ],
)
def test_who_knows_the_prompt_can_say_whether_it_opens_reasoning(
    builtin: ChatFormat, text: str, opened: bool | None, reasoning: str | None, content: str
) -> None:
    read = builtin.parse(builtin._tokenizer.encode(text), opened=opened)
    assert (read.reasoning, read.content) == (reasoning, content)


def test_a_call_inside_reasoning_is_no_call(builtin: ChatFormat) -> None:
    read = parse(builtin, f"<think>{CALL}</think>{CALL}")
    assert [call.status for call in read.tool_calls] == ["ok"]
    assert parse(builtin, f"<think>{CALL}").tool_calls == ()


@pytest.mark.parametrize(
    ("body", "status", "name", "arguments"),
    [
        ('{"name": "look", "arguments": {"at": 1}}', "ok", "look", {"at": 1}),
        (' {"arguments": {}, "name": "wait"} ', "ok", "wait", {}),
        ('{"name": "look"}', "ok", "look", {}),
        ('{"name": "look", "arguments": {"a": {"b": [1, null]}}, "x": 1}', "ok", "look", {"a": {"b": [1, None]}}),
        ('{"name": "jump", "arguments": {}}', "unknown_tool", "jump", {}),
        ('{"name": "look", "arguments": {"at": 1}', "invalid_json", "", None),
        ("", "invalid_json", "", None),
        ("look()", "invalid_json", "", None),
        ("{'name': 'look'}", "invalid_json", "", None),
        ('{"name": "look"} {"name": "look"}', "invalid_json", "", None),
        ("[" * 3000, "invalid_json", "", None),
        ('[{"name": "look"}]', "malformed", "", None),
        ('"look"', "malformed", "", None),
        ("null", "malformed", "", None),
        ('{"name": "look", "arguments": "at"}', "malformed", "look", None),
        ('{"name": "look", "arguments": [1]}', "malformed", "look", None),
        ('{"name": "look", "arguments": null}', "malformed", "look", None),
        ('{"name": "look", "name": "wait"}', "malformed", "", None),  # it says two things
        ('{"name": "look", "arguments": {"a": 1, "a": 2}}', "ok", "look", {"a": 2}),
        ('{"arguments": {}}', "missing_name", "", None),
        ('{"name": "", "arguments": {}}', "missing_name", "", None),
        ('{"name": 3, "arguments": {}}', "missing_name", "", None),
        ("{}", "missing_name", "", None),
    ],
)
def test_every_call_has_the_status_that_it_deserves(
    builtin: ChatFormat, body: str, status: str, name: str, arguments: Any
) -> None:
    (call,) = parse(builtin, f"Now.<tool_call>{body}</tool_call>", TOOLS).tool_calls
    assert (call.status, call.name, call.arguments, call.raw) == (status, name, arguments, body.strip())
    (cut,) = parse(builtin, f"Now.<tool_call>{body}", TOOLS).tool_calls
    assert (cut.status, cut.raw) == ("unclosed", body.strip())


def test_without_tools_every_name_is_known_and_with_none_declared_none_is(builtin: ChatFormat) -> None:
    assert parse(builtin, CALL).tool_calls[0].status == "ok"
    assert parse(builtin, CALL, TOOLS).tool_calls[0].status == "ok"
    assert parse(builtin, CALL, []).tool_calls[0].status == "unknown_tool"


@pytest.mark.parametrize("name", ["builtin", "qwen2_5", "qwen3"])
def test_several_calls_leave_the_content_between_them(name: str, request: pytest.FixtureRequest) -> None:
    chat: ChatFormat = request.getfixturevalue(name)
    broken = "<tool_call>{</tool_call>"
    read = parse(chat, f"One.{CALL}Two.{broken}{CALL}Three.")
    assert read.content == "One.Two.Three."
    assert [call.status for call in read.tool_calls] == ["ok", "invalid_json", "ok"]
    spans = [call.tokens for call in read.tool_calls]
    assert spans[0][1] < spans[1][0]
    assert spans[1][1] <= spans[2][0] + 1  # one token may hold the end of a call and the beginning of the next
    assert [call.name for call in read.message().tool_calls] == ["look", "look"]


def test_a_span_takes_whole_tokens_where_a_token_crosses_the_delimiter(builtin: ChatFormat) -> None:
    ids = encode(builtin, "a<tool_call>{}</tool_call>b", control=False)
    (call,) = builtin.parse(ids).tool_calls
    start, end = call.tokens
    assert "<tool_call>{}</tool_call>" in builtin.decode(ids[start:end])
    assert "<tool_call>" not in builtin.decode(ids[:start] + ids[start + 1 :])
    assert "</tool_call>" not in builtin.decode(ids[: end - 1])


def test_a_dialect_asked_for_is_read_and_goes_with_the_format(tiny: Callable[..., ChatFormat]) -> None:
    template = "{% for message in messages %}{{ message.content }}<|im_end|>\n{% endfor %}"
    folder = tiny(template).reference
    chat = ChatFormat.from_pretrained(folder, template, dialect="glm")
    assert (tiny(template).dialect, chat.dialect) == ("hermes", "glm")
    assert chat.fingerprint == tiny(template).fingerprint  # it changes no id
    assert pickle.loads(pickle.dumps(chat)) is chat
    assert [call.name for call in parse(chat, "<tool_call>look</tool_call>").tool_calls] == ["look"]
    with pytest.raises(UnknownName, match="did you mean mistral"):
        ChatFormat.from_pretrained(folder, template, dialect="mistrall")


def test_json_escapes_and_big_numbers_are_kept(builtin: ChatFormat) -> None:
    arguments = {"a": 'é\n"', "n": 2**70, "f": 0.1}
    (call,) = parse(builtin, f"<tool_call>{json.dumps({'name': 'f', 'arguments': arguments})}</tool_call>").tool_calls
    assert call.arguments == arguments


def test_bytes_that_are_no_text_become_replacement_characters(builtin: ChatFormat) -> None:
    lone = builtin._tokenizer.token_bytes.index(b"\xff")
    assert builtin.parse(np.array([lone], np.int32)).content == "\ufffd"
