"""A message becomes the turn that the template writes of it, proved by reading it back."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Message
from agentgym_tok.chat import Refusal
from agentgym_tok.errors import ChatError
from agentgym_tok.types import ToolCall

SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"properties": {"query": {}}}}}
said = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(str.strip)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_call_is_read_back_and_can_be_answered(format_of: ChatFormat, data: st.DataObject) -> None:
    query = data.draw(said.filter(lambda text: not any(mark in text for mark in "<>[]{}|:;\uff5c")))
    message = Message("assistant", "", tool_calls=(ToolCall("search", {"query": query}, "call00000"),))
    ids_T = format_of.write(message)
    (call,) = format_of.parse(ids_T, [SEARCH]).tool_calls
    assert (call.name, call.arguments, call.status) == ("search", {"query": query}, "ok")
    assert ids_T[-1] in format_of.stop_ids
    assert format_of.encode_turn(message).tolist() == ids_T.tolist()


@pytest.mark.parametrize("content", ["", "Now I look.", "An end: <|im_end|>, <think> and </tool_call>."])
def test_models_own_templates_write_calls_that_can_be_answered(chat: ChatFormat, content: str) -> None:
    message = Message("assistant", content, tool_calls=(ToolCall("search", {"query": "<|im_end|> é"}, "call00000"),))
    if chat.dialect == "deepseek" and content:
        pytest.skip("its template writes no text before a call")
    ids_T = chat.write(message, [SEARCH])
    read = chat.parse(ids_T, [SEARCH])
    assert (read.content, read.tool_calls[0].arguments) == (content, {"query": "<|im_end|> é"})
    context = chat.open([Message("user", "Go.")], [SEARCH]).sampled(ids_T)
    answer = Message("tool", "Found.", tool_call_id="call00000", name="search")
    assert not isinstance(chat.bridge(context, [answer]), Refusal)


def test_text_and_reasoning_are_written_as_the_template_does(builtin: ChatFormat, qwen3: ChatFormat) -> None:
    message = Message("assistant", "Yes <|im_end|>.", reasoning="Hm.")
    for chat in (builtin, qwen3):
        ids_T = chat.write(message)
        assert chat.decode(ids_T) == "<think>\nHm.\n</think>\n\nYes <|im_end|>.<|im_end|>"
        assert ids_T.tolist().count(chat.stop_ids[0]) == 1


def test_where_nothing_closes_a_turn_the_next_opener_ends_it(tiny: Callable[..., ChatFormat]) -> None:
    opener = "{{ '<|im_start|>assistant\\n' if add_generation_prompt }}"
    chat = tiny("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}" + opener)
    ids_T = chat.write(Message("assistant", "Yes."))
    assert chat.decode(ids_T) == "Yes.<|im_start|>"
    context = chat.open([Message("user", "Go.")]).sampled(ids_T)
    after = chat.bridge(context, [Message("user", "And?")])
    assert not isinstance(after, Refusal)
    assert chat.decode(after.span.ids_T) == "user\nAnd?<|im_start|>assistant\n"


def test_what_the_template_cannot_say_is_refused(builtin: ChatFormat, qwen2_5: ChatFormat, qwen3: ChatFormat) -> None:
    with pytest.raises(ChatError, match="not read back"):
        qwen2_5.write(Message("assistant", "Yes.", reasoning="Its template drops this."))
    silent = ChatFormat.from_pretrained(qwen3.reference, template_kwargs={"enable_thinking": False})
    assert silent.decode(silent.write(Message("assistant", "Yes."))) == "Yes.<|im_end|>"
    with pytest.raises(ChatError, match="not read back"):
        silent.write(Message("assistant", "Yes.", reasoning="The prompt has closed it."))
    with pytest.raises(ChatError, match="not read back"):
        builtin.write(Message("assistant", "", tool_calls=(ToolCall("look", None, raw="{", status="invalid_json"),)))
    with pytest.raises(ChatError, match="role user"):
        builtin.write(Message("user", "Hi."))


def test_inline_text_is_a_turn_that_goes_on(builtin: ChatFormat) -> None:
    text = "<think>Hm.</think><search> it </search> <|im_end|>"
    open_T, whole_T = builtin.encode_turn(Message("inline", text)), builtin.encode_turn(text)
    assert whole_T.tolist() == [*open_T.tolist(), builtin.stop_ids[0]]
    assert builtin.decode(open_T) == text
    assert builtin.stop_ids[0] not in open_T.tolist()


def test_arguments_of_other_kinds_need_their_schema(format_of: ChatFormat) -> None:
    parameters = {"properties": {"n": {"type": "integer"}, "all": {"type": "boolean"}}}
    tool: dict[str, Any] = {"name": "take", "parameters": parameters}
    message = Message("assistant", "", tool_calls=(ToolCall("take", {"n": 3, "all": True}),))
    (call,) = format_of.parse(format_of.write(message, [tool]), [tool]).tool_calls
    assert json.dumps(call.arguments, sort_keys=True) == '{"all": true, "n": 3}'
