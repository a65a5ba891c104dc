"""What a template writes for an assistant's message is read back as the same message."""

# ruff: noqa: RUF001  # DeepSeek's tokens are written with this bar

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.chat.dialects import find_dialect
from agentgym_tok.chat.render import render
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.types import Message, ToolCall

QUOTES = ["</tool_call>", "<tool_call>", "</think>", "<|im_end|>", "```", "[/THINK]", "</parameter>", "</arg_value>"]
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>[]{}:;|｜"), max_size=12)
names = st.sampled_from(["look", "get-weather", "a.b", "f_1"])
keys = st.from_regex(r"[a-z][a-zA-Z_0-9]{0,5}", fullmatch=True)


def values(strings: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    scalars = st.none() | st.booleans() | numbers | strings
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
    )


def calls(chat: ChatFormat, *, quoted: bool, most: int) -> st.SearchStrategy[list[ToolCall]]:
    """Draw calls; each has a name of its own, so that a schema can type its arguments."""
    quotes = [*QUOTES, *chat._reader.dialect.delimiters, '"', "\\", "\n", "'", "{", "}", ";", ",", ":", "é🤖", " "]
    strings = st.lists(words | st.sampled_from(quotes if quoted else ['"', "\\", "\n", "é🤖"]), max_size=4).map("".join)
    arguments = st.dictionaries(keys, values(strings), max_size=4)
    drawn = st.lists(st.tuples(names, arguments), min_size=1, max_size=most)
    return drawn.map(lambda pairs: [ToolCall(f"{name}{i}", given) for i, (name, given) in enumerate(pairs)])


def kind(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    return kinds.get(type(value), "null")


def tool(call: ToolCall) -> dict[str, Any]:
    properties = {key: {"type": kind(value)} for key, value in (call.arguments or {}).items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": call.name, "description": "", "parameters": parameters}}


def turn_of(chat: ChatFormat, message: Message) -> list[int]:
    """Return the ids of the turn that the template writes behind its generation prompt."""
    user = Message("user", "Go on.")
    whole = render(chat._template, chat._tokenizer, [user, message], [], generation=False)
    prompt = render(chat._template, chat._tokenizer, [user], [], generation=True)
    differs = (place for place, pair in enumerate(zip(whole.text, prompt.text, strict=False)) if pair[0] != pair[1])
    place = next(differs, len(prompt.text))
    behind = whole.text[place - 1 if whole.text[place - 1] == "<" else place :]
    if chat._reader.opened and "</think>" not in behind:
        behind = "</think>" + behind  # the template forgets the reasoning that its prompt opens
    ids = chat._tokenizer.encode(behind, whole.cut).tolist()
    stops = [place for place, index in enumerate(ids) if index in chat.stop_ids]
    return ids[: stops[-1] + 1] if stops else ids


def plain(call: ToolCall) -> tuple[str, str, str]:
    return call.name, json.dumps(call.arguments, sort_keys=True), call.status


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_calls_come_back_as_the_template_wrote_them(family: Any, format_of: ChatFormat, data: st.DataObject) -> None:
    chat = format_of
    # Without tokens of its own a delimiter cannot be quoted: nothing tells the two apart.
    own = all(chat._tokenizer.token_id(text) is not None for text in chat._reader.dialect.delimiters)
    message = Message(
        "assistant",
        data.draw(words.map(str.strip)),
        tool_calls=tuple(data.draw(calls(chat, quoted=own, most=1 if family.single else 3))),
        reasoning=data.draw(words.map(str.strip)) or None,
    )
    assert chat.dialect == family.dialect
    ids = turn_of(chat, message)
    read = chat.parse(ids, [tool(call) for call in message.tool_calls])
    assert [plain(call) for call in read.tool_calls] == [plain(call) for call in message.tool_calls]
    assert (read.content, read.reasoning) == (message.content, message.reasoning)
    assert read.closed
    assert read.reasoning_closed
    place = 0
    for call in read.tool_calls:
        start, end = call.tokens
        assert place <= start < end <= len(ids)
        assert call.raw in chat.decode(ids[start:end])
        place = end


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_models_own_templates_are_read_back(chat: ChatFormat, data: st.DataObject) -> None:
    drawn = data.draw(calls(chat, quoted=True, most=2))
    content = "" if chat.dialect == "deepseek" else data.draw(words.map(str.strip))
    read = chat.parse(turn_of(chat, Message("assistant", content, tool_calls=tuple(drawn))))
    assert [plain(call) for call in read.tool_calls] == [plain(call) for call in drawn]
    assert read.content == content


def foreign() -> list[Path]:
    folder = os.environ.get("AGENTGYM_TOK_TRL")
    return sorted(Path(folder).glob("*.jinja")) if folder else []


STOPS = {
    "deepseek": ("<｜end▁of▁sentence｜>",),
    "gemma": ("<turn|>", "<|tool_response>"),
    "glm": ("<|observation|>",),
    "harmony": ("<|return|>", "<|call|>"),
    "llama": ("<|eot_id|>",),
}
MOST = {"deepseek": 2, "harmony": 1, "llama": 1}  # some templates refuse more calls, or end the turn behind each


@pytest.mark.skipif(not foreign(), reason="AGENTGYM_TOK_TRL names no folder of chat templates (*.jinja)")
@pytest.mark.parametrize("file", foreign(), ids=lambda file: file.stem)
def test_published_templates_are_read_back(file: Path, make_format: Callable[..., ChatFormat]) -> None:
    source = file.read_text(encoding="utf-8")
    template = ChatTemplate(source, {"bos_token": "", "eos_token": ""})
    if not template.writes_calls(with_text=False):
        pytest.skip("the template writes no calls")
    dialect = find_dialect(template.literals, [])
    if not any(all(sign in source for sign in group) for group in dialect.signs):
        pytest.skip("no dialect for what the template writes")
    chat = make_format(source, dialect.delimiters, STOPS.get(dialect.name, ("<|im_end|>",)))

    @given(st.data())
    @settings(max_examples=30, deadline=None)
    def holds(data: st.DataObject) -> None:
        drawn = data.draw(calls(chat, quoted=True, most=MOST.get(dialect.name, 3)))
        message = Message("assistant", "", tool_calls=tuple(drawn), reasoning="Hm.")
        read = chat.parse(turn_of(chat, message), [tool(call) for call in drawn])
        assert [plain(call) for call in read.tool_calls] == [plain(call) for call in drawn]
        assert read.content == ""

    holds()
