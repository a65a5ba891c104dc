"""Whatever arrives and in whatever pieces, what is told of a turn while it is drawn is what is read in the end."""

# ruff: noqa: RUF001  # DeepSeek's tokens are written with this bar

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Message, ToolCall
from agentgym_tok.chat.deltas import CallArguments, CallBegun, CallEnded, ReasoningDelta, TextDelta, TurnDelta
from agentgym_tok.chat.dialects import DIALECTS
from agentgym_tok.chat.streaming import TurnStream
from agentgym_tok.tokens import as_ids

FRAGMENTS = [
    *["\n", "\n\n ", "\xa0", "\u3000", "é🤖", "Now.", "Hm, well.", "look", "functions.look:0", "thought", "thought\n"],
    *['{"name": "look", "arguments": {"a": "b", "c": [1, {"d": "}\\""}]}}', '{"arguments": {"a": 1}, "name": "look"}'],
    *['{"name": "look", "parameters": {"a": "b"}}; ', '{"type": "function", "name": "f", "parameters": {}}'],
    *['{"name": "a", "name": "b"}', '{"a": 1}', '{"name":', '"name"', '"arguments": ', '"parameters": {', '{ "', "{ "],
    *["{", "}", "[", "]", ":", ",", ";", '"', "\\", "null", "`", "```", "```json\n", "\n```", "json", "function"],
    *["to=functions.look", "analysis", "commentary", "final", "call:look{", "a:", "{a:1,b:[true,None]}"],
    *["<function=look>\n", "</function>\n", "<parameter=a>\n", "\n</parameter>\n", "<parameter=a>\n1\n</parameter>\n"],
    *["<", "</", "[T", "<|", "1" * 30, "a" * 30],
]
TOOLS = [{"function": {"name": "look", "parameters": {"properties": {"a": {"type": "integer"}}}}}]
LONG = "A quick brown fox, well: jumps over the lazy dog and goes on; there is nothing to be done about it. " * 3


def stream(chat: ChatFormat, ids: Sequence[int], sizes: Sequence[int], **given: Any) -> list[TurnDelta]:
    """Push ids in pieces of these sizes, again and again, and end."""
    turn = TurnStream(chat, **given)
    deltas: list[TurnDelta] = []
    place = 0
    while place < len(ids):
        for size in [*sizes, 1]:
            deltas += turn.push(ids[place : place + size])
            place += size
    return [*deltas, *turn.end()]


def text_of(deltas: Sequence[TurnDelta], kind: type[TextDelta | ReasoningDelta | CallArguments]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, kind))


def check(chat: ChatFormat, ids: Sequence[int], sizes: Sequence[int], **given: Any) -> None:
    """Hold that the pieces say what is read of the whole."""
    deltas = stream(chat, ids, sizes, **given)
    message = chat.parse(as_ids(ids), **given)
    assert text_of(deltas, TextDelta) == message.content
    assert text_of(deltas, ReasoningDelta) == (message.reasoning or "")
    assert [delta.index for delta in deltas if isinstance(delta, CallEnded)] == list(range(len(message.tool_calls)))
    begun = [delta.index for delta in deltas if isinstance(delta, CallBegun)]
    assert begun == sorted(set(begun))
    for index, call in enumerate(message.tool_calls):
        told = [delta for delta in deltas if getattr(delta, "index", None) == index]
        *before, end = told
        assert end == CallEnded(index, call.status)
        if not before:
            assert call.name == ""
            continue
        first, *pieces = before
        assert isinstance(first, CallBegun)
        # JSON that breaks behind the name takes it along.
        assert first.name == call.name or (not call.name and call.status in {"invalid_json", "malformed", "unclosed"})
        assert first.id in {"", call.id} or not call.name
        arguments = text_of(pieces, CallArguments)
        if call.status in {"ok", "unknown_tool"}:
            assert json.dumps(json.loads(arguments), sort_keys=True) == json.dumps(call.arguments, sort_keys=True)


# ---- any turn


@st.composite
def turns(draw: st.DrawFn, chat: ChatFormat) -> list[int]:
    """Draw a turn of fragments, meant or spelled, with half characters and stop tokens anywhere."""
    stops = [chat.token_text(index) for index in chat.stop_ids]
    delimiters = list(chat._reader.dialect.delimiters)
    own = [text for dialect, text in CALLS if dialect == chat.dialect]
    texts = st.sampled_from(FRAGMENTS) | st.sampled_from([*delimiters, *stops]) | st.sampled_from(own)
    single = {entry[0]: index for index, entry in enumerate(chat._tokenizer.token_bytes) if len(entry) == 1}
    ids: list[int] = []
    for text, way in draw(st.lists(st.tuples(texts, st.sampled_from("mmmmsb")), max_size=10)):
        match way:
            case "m":
                ids += chat._tokenizer.encode(text).tolist()
            case "s":
                ids += chat.encode(text).tolist()
            case _:
                ids += [single[byte] for byte in text.encode()[: draw(st.integers(0, 40))]]
    ids = ids[: draw(st.none() | st.integers(0, 60))]
    return [*ids, *chat.stop_ids[: draw(st.integers(0, 1))]]


sizes = st.lists(st.integers(0, 6), max_size=4)
ways = st.fixed_dictionaries(
    {"tools": st.sampled_from([None, [], TOOLS]), "opened": st.sampled_from([None, False, True])}
)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_pieces_say_what_is_read_of_any_text(format_of: ChatFormat, data: st.DataObject) -> None:
    check(format_of, data.draw(turns(format_of)), data.draw(sizes), **data.draw(ways))


@given(st.lists(st.integers(0, 4200), max_size=60), sizes, ways)
@settings(max_examples=30, deadline=None)
def test_pieces_say_what_is_read_of_any_ids(
    dialect_format: ChatFormat, ids: list[int], sizes: list[int], given: dict[str, Any]
) -> None:
    check(dialect_format, [index % dialect_format.vocab_size for index in ids], sizes, **given)


CALLS = [
    ("hermes", '<tool_call>\n{"name": "look", "arguments": {"a": "b", "c": [1, {"d": "}"}]}}\n</tool_call>'),
    ("hermes", '<tool_call>{"arguments": {"a": "é"}, "id": "x", "name": "look"}</tool_call>'),
    ("hermes", '<tool_call>{"name": "a", "name": "b", "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>\xa0{"name": "look"}\u3000</tool_call>'),
    ("qwen_xml", "<tool_call>\n<function=look>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>"),
    ("qwen_xml", "<tool_call><function=f><parameter=a>1</parameter><parameter=b>2</parameter></function></tool_call>"),
    ("qwen_xml", "<tool_call><function=f><parameter=a>x</parameter></a>\n</parameter></function></tool_call>"),
    ("qwen_xml", "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>"),
    ("glm", "<tool_call>look\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>"),
    ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value> x\n</arg_value><arg_key>b</arg_key>\n</tool_call>"),
    ("llama", '{"name": "look", "parameters": {"a": "b"}}'),
    ("llama", '; {"name": "look", "arguments": {"a": "b"}, "parameters": {"c": 1}}'),
    ("llama", '<|python_tag|>{"name": "f"};<|python_tag|> {"name": "g", "parameters": {}}'),
    ("llama", '{"name": "look", "age": 3}'),
    ("deepseek", '<｜tool▁call▁begin｜>look<｜tool▁sep｜>{"a": "b```"}<｜tool▁call▁end｜>'),
    ("deepseek", '<｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{"a": "```\\n"}\n```<｜tool▁call▁end｜>'),
    ("deepseek", '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\ng\n```json\n{"a": 1}```<｜tool▁call▁end｜>'),
    ("deepseek", '<｜tool▁call▁begin｜>f<｜tool▁sep｜>\xa0{"a": "```"}<｜tool▁call▁end｜>'),
    ("kimi", '<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"a": "b"}<|tool_call_end|>'),
    ("mistral", '[TOOL_CALLS]look[CALL_ID]x[ARGS]{"a": "b"}'),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "]"}, "id": "abc"}, {"name": 1}, {"name": "g"}] Done.'),
    ("gemma", '<|tool_call>call:look{a:<|"|>b "é" {<|"|>,c:[1,{d:None}],<|"|>e f<|"|>:true}<tool_call|>'),
    ("gemma", "<|channel>thought\nHm.<channel|>"),
    ("harmony", '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"a": "b"}<|call|>'),
    ("harmony", "<|channel|>analysis<|message|> Hm.<|end|><|start|>assistant"),
    ("harmony", "<|channel|>final<|message|>Done. <|end|>"),
]  # fmt: skip


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_change_anywhere_in_a_good_turn_is_told_as_it_is_read(
    dialect_format: ChatFormat, data: st.DataObject
) -> None:
    chat = dialect_format
    good = [text for dialect, text in CALLS if dialect == chat.dialect]
    parts = st.sampled_from([*good, *good, "Now. ", "<think>\nHm.\n</think>\n\n", "; ", "\n"])
    text = "".join(data.draw(st.lists(parts, min_size=1, max_size=3)))
    place = data.draw(st.integers(0, len(text)))
    changes = st.sampled_from(["", *FRAGMENTS, *chat._reader.dialect.delimiters])
    text = text[:place] + data.draw(changes) + text[place + data.draw(st.integers(0, 3)) :]
    ids = chat._tokenizer.encode(text).tolist()
    check(chat, [*ids, *chat.stop_ids[: data.draw(st.integers(0, 1))]], data.draw(sizes), **data.draw(ways))


def test_a_cut_anywhere_is_told_as_it_is_read(dialect_format: ChatFormat) -> None:
    chat = dialect_format
    for dialect, text in CALLS:
        if dialect == chat.dialect:
            ids = chat._tokenizer.encode("<think>Hm.</think>" * (dialect != "harmony") + text).tolist()
            for cut in range(len(ids) + 1):
                check(chat, ids[:cut], [1], tools=TOOLS, opened=None)


# ---- as soon as it is certain


def lag(chat: ChatFormat, ids: Sequence[int], text: str, kind: type[TextDelta | CallArguments], **given: Any) -> int:
    """Return how many characters of a long text a client lacks at most that stand in the ids already."""
    turn = TurnStream(chat, **given)
    told, most, place = "", 0, chat.decode(as_ids(ids)).index(text)
    for count, index in enumerate(ids, start=1):
        told += text_of(turn.push([index]), kind)
        drawn = min(max(0, len(chat.decode(as_ids(ids[:count]))) - place), len(text))
        have = len(told) - told.index(text[0]) if text[0] in told else 0
        most = max(most, drawn - have)
    return most


def longest(chat: ChatFormat) -> int:
    return max(map(len, chat._reader.dialect.delimiters))


def test_text_is_told_but_for_what_may_begin_a_delimiter(format_of: ChatFormat) -> None:
    chat = format_of
    ids = chat.write(Message("assistant", LONG.strip())).tolist()
    assert lag(chat, ids, LONG.strip(), TextDelta, opened=False) <= 1  # the blank behind a word
    if chat.dialect != "harmony":  # its headers tell
        assert lag(chat, ids, LONG.strip(), TextDelta) == len(LONG.strip())  # a closer could make it reasoning
    starts = "".join(text[:-1] + " " for text in chat._reader.dialect.delimiters)
    if chat.dialect != "harmony":
        assert lag(chat, chat.encode(f"Now{starts}.").tolist(), f"Now{starts}.", TextDelta, opened=False) <= longest(
            chat
        )


def test_arguments_are_told_as_they_come(family: Any, format_of: ChatFormat) -> None:
    chat = format_of
    arguments = {"a": LONG, "b": LONG}
    tools = [{"name": "look", "parameters": {"properties": {"a": {"type": "string"}}}}]
    message = Message("assistant", "", tool_calls=(ToolCall("look", arguments),))
    ids = chat.write(message, tools).tolist()
    text = LONG
    late = lag(chat, ids, text, CallArguments, tools=tools)
    if family.dialect in {"qwen_xml", "glm"}:  # the schema decides what a value is, once it is whole
        assert late == len(LONG)
        turn = TurnStream(chat, tools)
        told = [(count, delta) for count, index in enumerate(ids) for delta in turn.push([index])]
        pieces = [(count, delta.text) for count, delta in told if isinstance(delta, CallArguments)]
        first = next(count for count, piece in pieces if LONG in piece)
        assert chat.decode(ids[:first]).count(LONG) == 1  # before the second parameter
    else:
        assert late <= longest(chat) if text in chat.decode(ids) else True


@pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
def test_a_call_begins_before_its_arguments_and_ends_with_its_closer(
    dialect: str, families: Any, make_format: Any
) -> None:
    family = families[dialect]
    chat = make_format(family.template, next(d.delimiters for d in DIALECTS if d.name == dialect), family.stops)
    text = next(text for name, text in CALLS if name == dialect)
    turn = TurnStream(chat)
    deltas = [delta for index in chat._tokenizer.encode(text).tolist() for delta in turn.push([index])]
    kinds = [type(delta) for delta in deltas]
    assert kinds[0] is CallBegun
    assert CallArguments in kinds or dialect in {"glm", "qwen_xml"}
    # A stop token could be the last one, and says nothing before it is not.
    assert kinds[-1] is CallEnded or dialect == "harmony"
    assert [type(delta) for delta in turn.end()] == ([CallEnded] if dialect == "harmony" else [])


# ---- one pass


def work(chat: ChatFormat, ids: Sequence[int]) -> int:
    """Count the calls of functions that it takes to stream a turn."""
    count = 0

    def see(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    turn = TurnStream(chat, opened=False)
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        for index in ids:
            turn.push([index])
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("spelled", [False, True])
def test_the_work_for_an_id_does_not_depend_on_those_before(dialect_format: ChatFormat, spelled: bool) -> None:
    chat = dialect_format
    encode = chat.encode if spelled else chat._tokenizer.encode
    calls = [text for dialect, text in CALLS if dialect == chat.dialect]
    heads = [text[: len(text) // 2] for text in calls]
    for head, text in [
        *[("", text) for text in [*chat._reader.dialect.delimiters, *calls, " ", "a ", '{"', '{"name":', "[", "<"]],
        *[
            (head, text)
            for head in heads
            for text in [" ", "a ", '"', "{", "\\", "```", "</parameter>\n", "<parameter="]
        ],
    ]:
        ids = encode(text).tolist()
        whole = [*encode(head).tolist(), *ids * (250 // len(ids) + 1)]
        assert work(chat, [*whole, *whole[-250:]]) <= 2.2 * work(chat, whole) + 250, (head, text)


def test_a_long_turn_takes_no_longer_than_others(dialect_format: ChatFormat) -> None:
    """Each of these would take hours if every id looked at those before."""
    chat = dialect_format
    for text in [*chat._reader.dialect.delimiters, " ", '{"', "\\", "```", "<parameter=a>b</parameter>", '{"name": ']:
        ids = chat.encode(text).tolist()
        check(chat, ids * (6_000 // len(ids)), [1], tools=None, opened=False)


# ---- what this rests on


def test_no_delimiter_holds_another() -> None:
    for dialect in DIALECTS:
        texts = sorted({*dialect.delimiters, *re.findall(r"<\|return\|>", dialect.delimiters[0])}, key=len)
        for place, text in enumerate(texts):
            assert not any(text in other for other in texts[place + 1 :])
            for other in texts:
                ends = range(1, min(len(text), len(other)))
                assert not any(text.endswith(other[:size]) for size in ends), (text, other)


@pytest.mark.parametrize("text", ["<tool_call>", "</tool_call>", "<think>"])
def test_a_quoted_delimiter_waits_for_the_token_that_makes_it_text(
    families: Any, make_format: Callable[..., ChatFormat], text: str
) -> None:
    delimiters = next(dialect.delimiters for dialect in DIALECTS if dialect.name == "hermes")
    chat = make_format(families["hermes"].template, delimiters, families["hermes"].stops)
    turn = TurnStream(chat, opened=False)
    assert text_of(turn.push(chat.encode(f"Write {text} here.")), TextDelta) == "Write"
    assert text_of(turn.push(chat._tokenizer.encode(text)), TextDelta).startswith(f" {text} here.")
