"""Whatever stands in a turn, every dialect answers, and says of every call where it stands and what is wrong."""

# ruff: noqa: RUF001  # DeepSeek's tokens are written with this bar

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.chat.dialects import DIALECTS, find_dialect
from agentgym_tok.errors import UnknownName
from agentgym_tok.types import AssistantMessage

FRAGMENTS = [
    *[
        "\n",
        "é🤖",
        '{"name": "look", "arguments": {"a": "b"}}',
        '{"name": "look", "parameters": {}}',
        '{"name": ',
        "{",
        "}",
    ],
    *[
        "[1]",
        "null",
        '"',
        "\\",
        ";",
        ",",
        "look",
        "functions.look:0",
        "to=functions.look",
        "analysis",
        "final",
        "call:look{",
    ],
    *["<function=look>", "</function>", "<parameter=a>", "</parameter>", "```json\n", "\n```", "1" * 5000, "[" * 2000],
]
MINIMAL = "{% for message in messages %}{{ message.content }}<|im_end|>\n{% endfor %}"
TOOLS = [{"function": {"name": "look", "parameters": {"properties": {"a": {"type": "integer"}}}}}]


def read(chat: ChatFormat, text: str, tools: Any = None, *, stop: bool = True) -> AssistantMessage:
    ids = chat._tokenizer.encode(text).tolist()
    return chat.parse([*ids, *chat.stop_ids[:stop]], tools)


def check(chat: ChatFormat, ids: list[int], message: AssistantMessage) -> None:
    """Hold what is true of every reading."""
    place = 0
    for call in message.tool_calls:
        start, end = call.tokens
        assert place <= start < end <= len(ids)
        assert call.raw in chat.decode(ids[start:end])
        assert (call.arguments is not None) or call.status not in {"ok", "unknown_tool"}
        assert call.name or call.status not in {"ok", "unknown_tool"}
        # One token may hold the end of a call and the beginning of the next.
        place = end - 1
    assert message.closed is bool(ids and ids[-1] in chat.stop_ids)
    message.message().to_dict()


# ---- any turn


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_any_text_gives_an_answer(dialect_format: ChatFormat, data: st.DataObject) -> None:
    chat = dialect_format
    stops = [chat.token_text(index) for index in chat.stop_ids]
    parts = st.sampled_from([*FRAGMENTS, *chat._reader.dialect.delimiters, *stops])
    pieces = data.draw(st.lists(st.tuples(parts, st.booleans()), max_size=12))
    ids: list[int] = []
    for text, meant in pieces:
        ids += (chat._tokenizer.encode(text) if meant else chat.encode(text)).tolist()
    check(chat, ids, chat.parse(ids, data.draw(st.sampled_from([None, [], TOOLS]))))


@given(st.lists(st.integers(0, 4200), max_size=40))
@settings(max_examples=50, deadline=None)
def test_any_ids_give_an_answer(dialect_format: ChatFormat, ids: list[int]) -> None:
    ids = [index % dialect_format.vocab_size for index in ids]
    check(dialect_format, ids, dialect_format.parse(ids, TOOLS))


@pytest.mark.parametrize("spelled", [False, True])
def test_a_turn_of_openers_takes_no_longer_than_others(dialect_format: ChatFormat, spelled: bool) -> None:
    """Each of these would take hours if every opener looked at the rest of the turn."""
    chat = dialect_format
    encode = chat.encode if spelled else chat._tokenizer.encode
    for text in [
        *chat._reader.dialect.delimiters,
        *[
            '{"name":',
            '{"name": "f", "parameters": {}};',
            '[TOOL_CALLS][{"',
            "[TOOL_CALLS][{},",
            '\\"',
            '<|tool_call>call:f{<|"|>',
        ],
        *[
            "<tool_call><function=f>",
            "<parameter=a>b</parameter>",
            "</parameter>\n\n",
            "<arg_key>a</arg_key>",
            "[CALL_ID]",
        ],
        *["<|start|>to=a<|message|>", "<think></think>"],
    ]:
        ids = encode(text).tolist()
        ids *= 15_000 // len(ids)
        check(chat, ids, chat.parse(ids, TOOLS))


def test_a_cut_anywhere_leaves_no_finished_call(dialect_format: ChatFormat) -> None:
    chat = dialect_format
    ids = chat._tokenizer.encode(CALL[chat.dialect]).tolist()
    assert [call.status for call in chat.parse(ids).tool_calls] == ["ok"]
    for cut in range(len(ids) - 1):
        statuses = {call.status for call in chat.parse(ids[:cut]).tool_calls}
        assert statuses <= {"unclosed"}, chat.decode(ids[:cut])


# ---- what each dialect reads

CALL = {
    "hermes": '<tool_call>\n{"name": "look", "arguments": {"a": "b"}}\n</tool_call>',
    "qwen_xml": "<tool_call>\n<function=look>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>look\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
    "llama": '{"name": "look", "parameters": {"a": "b"}}',
    "deepseek": '<｜tool▁call▁begin｜>look<｜tool▁sep｜>{"a": "b"}<｜tool▁call▁end｜>',
    "kimi": '<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"a": "b"}<|tool_call_end|>',
    "mistral": '[TOOL_CALLS]look[ARGS]{"a": "b"}',
    "gemma": '<|tool_call>call:look{a:<|"|>b<|"|>}<tool_call|>',
    "harmony": '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"a": "b"}<|call|>',
}


def xml(parameters: str) -> str:
    return f"<tool_call><function=f>{parameters}</function></tool_call>"


def fenced(text: str) -> str:
    return f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{text}<｜tool▁call▁end｜>"


READ = [
    # text, name, arguments, status
    ("qwen_xml", "<tool_call><function=f></function></tool_call>", "f", {}, "ok"),
    ("qwen_xml", xml("<parameter=a></parameter>"), "f", {"a": ""}, "ok"),
    ("qwen_xml", xml("<parameter=a>\n</parameter>"), "f", {"a": ""}, "ok"),
    ("qwen_xml", xml("<parameter=a>\n\n\n</parameter>"), "f", {"a": "\n"}, "ok"),
    ("qwen_xml", xml("<parameter=a>1</parameter><parameter=a>2</parameter>"), "f", {"a": "2"}, "ok"),
    ("qwen_xml", xml("<parameter=a>x</parameter></a>\n</parameter>"), "f", {"a": "x</parameter></a>"}, "ok"),
    ("qwen_xml", xml("<parameter=a>1\n<parameter=b>2</parameter>"), "f", None, "malformed"),
    ("qwen_xml", xml("<parameter=a>1"), "f", None, "malformed"),
    ("qwen_xml", xml("<parameter=a>1</parameter> junk"), "f", None, "malformed"),
    ("qwen_xml", xml("junk"), "f", None, "malformed"),
    ("qwen_xml", "<tool_call><function=f><parameter=a>1</parameter></tool_call>", "f", None, "malformed"),
    ("qwen_xml", "<tool_call><function=></function></tool_call>", "", None, "missing_name"),
    ("qwen_xml", '<tool_call>{"name": "f", "arguments": {}}</tool_call>', "", None, "malformed"),
    ("glm", "<tool_call>look</tool_call>", "look", {}, "ok"),
    ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value></arg_value></tool_call>", "f", {"a": ""}, "ok"),
    ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value> x\n</arg_value></tool_call>", "f", {"a": " x\n"}, "ok"),
    ("glm", "<tool_call><arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", "", None, "missing_name"),
    ("glm", "<tool_call></tool_call>", "", None, "missing_name"),
    ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value>1</tool_call>", "f", None, "malformed"),
    ("glm", "<tool_call>f<arg_key>a</arg_key>x<arg_value>1</arg_value></tool_call>", "f", None, "malformed"),
    ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>x</tool_call>", "f", None, "malformed"),
    ("glm", "<tool_call>f<arg_value>1</arg_value><arg_key>a</arg_key></tool_call>", "f", None, "malformed"),
    ("llama", '{"name": "f", "arguments": {"a": 1}}', "f", {"a": 1}, "ok"),
    ("llama", '{"type": "function", "name": "f", "parameters": {}}', "f", {}, "ok"),
    ("llama", '<|python_tag|>{"name": "f"}', "f", {}, "ok"),
    ("llama", "<|python_tag|>print(1)", "", None, "invalid_json"),
    ("llama", '<|python_tag|>{"parameters": {}}', "", None, "missing_name"),
    ("llama", '{"name": "f", "parameters": {"a"}}', "", None, "invalid_json"),
    ("llama", '{"name": "f", "parameters": {"a": ', "", None, "invalid_json"),
    ("llama", '{"name": "f", "parameters": [1]}', "f", None, "malformed"),
    ("llama", '{"name": 3, "parameters": {}}', "", None, "missing_name"),
    ("deepseek", fenced('f\n```json\n{"a": "```\\n"}\n```'), "f", {"a": "```\n"}, "ok"),
    ("deepseek", fenced("f\n```\n{}```"), "f", {}, "ok"),
    ("deepseek", fenced("f\n```json\n{}"), "f", None, "malformed"),
    ("deepseek", fenced("\n```json\n{}\n```"), "", None, "missing_name"),
    ("deepseek", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "f", {}, "ok"),
    ("deepseek", fenced("{}"), "function", {}, "ok"),
    ("deepseek", fenced("f\n{}"), "f", None, "malformed"),
    ("deepseek", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{<｜tool▁call▁end｜>", "f", None, "invalid_json"),
    ("deepseek", fenced("f\n```json\n[]\n```"), "f", None, "malformed"),
    ("deepseek", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>[]<｜tool▁call▁end｜>", "f", None, "malformed"),
    ("deepseek", "<｜tool▁call▁begin｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>", "", None, "missing_name"),
    ("deepseek", "<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>", "", None, "malformed"),
    ("kimi", "<|tool_call_begin|>f:3<|tool_call_argument_begin|>{}<|tool_call_end|>", "f", {}, "ok"),
    ("kimi", "<|tool_call_begin|>call_1a<|tool_call_argument_begin|>{}<|tool_call_end|>", "", None, "missing_name"),
    ("kimi", "<|tool_call_begin|>f:3<|tool_call_argument_begin|>{<|tool_call_end|>", "f", None, "invalid_json"),
    ("kimi", "<|tool_call_begin|>f:3{}<|tool_call_end|>", "", None, "malformed"),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}}]', "f", {}, "ok"),
    ("mistral", '[TOOL_CALLS]f{"a": 1}', "f", {"a": 1}, "ok"),
    ("mistral", "[TOOL_CALLS]f[CALL_ID]x[ARGS]{}", "f", {}, "ok"),
    ("mistral", "[TOOL_CALLS]f[ARGS]", "f", None, "malformed"),
    ("mistral", "[TOOL_CALLS]f[ARGS]{", "f", None, "invalid_json"),
    ("mistral", "[TOOL_CALLS]{}", "", None, "missing_name"),
    ("mistral", "[TOOL_CALLS]", "", None, "missing_name"),
    ("mistral", "[TOOL_CALLS]f[ARGS][1]{}", "f[ARGS][1]", None, "malformed"),
    ("mistral", "[TOOL_CALLS][1, 2]", "", None, "malformed"),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": "{}"}]', "f", None, "malformed"),
    ("mistral", '[TOOL_CALLS][{"arguments": {}}]', "", None, "missing_name"),
    ("mistral", '[TOOL_CALLS][{"name": "f"', "", None, "invalid_json"),
    ("mistral", "[TOOL_CALLS][", "", None, "malformed"),
    ("gemma", "<|tool_call>call:f{}<tool_call|>", "f", {}, "ok"),
    ("gemma", '<|tool_call>call:f{<|"|>a b<|"|>:[1,-2.5e3]}<tool_call|>', "f", {"a b": [1, -2500.0]}, "ok"),
    ("gemma", "<|tool_call>call:f{a:{None:[null, None]}}<tool_call|>", "f", {"a": {"None": [None, None]}}, "ok"),
    ("gemma", "<|tool_call>call:{}<tool_call|>", "", None, "missing_name"),
    ("gemma", "<|tool_call>f{}<tool_call|>", "", None, "malformed"),
    ("gemma", "<|tool_call>call:f{a:b}<tool_call|>", "f", None, "malformed"),
    ("gemma", '<|tool_call>call:f{a:<|"|>b}<tool_call|>', "f", None, "malformed"),
    ("gemma", "<|tool_call>call:f{a:1}}<tool_call|>", "f", None, "malformed"),
    ("harmony", "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "f", {}, "ok"),
    ("harmony", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "f", {}, "ok"),
    ("harmony", "<|channel|>analysis to=browser.search code<|message|>{}<|call|>", "browser.search", {}, "ok"),
    ("harmony", "<|channel|>analysis to=python code<|message|>1 + 1<|call|>", "python", None, "invalid_json"),
    ("harmony", "<|channel|>commentary to=functions.f<|message|>[]<|call|>", "f", None, "malformed"),
    ("harmony", "<|channel|>commentary to=functions.<|message|>{}<|call|>", "", None, "missing_name"),
]  # fmt: skip


@pytest.fixture(scope="module")
def formats(make_format: Callable[..., ChatFormat]) -> dict[str, ChatFormat]:
    made = {}
    for dialect in DIALECTS:
        stops = ("<|return|>", "<|call|>") if dialect.name == "harmony" else ("<|im_end|>",)
        made[dialect.name] = make_format(MINIMAL, dialect.delimiters, stops, dialect.name)
    return made


@pytest.mark.parametrize(("dialect", "text", "name", "arguments", "status"), READ)
def test_every_call_is_read_for_what_it_is(
    formats: dict[str, ChatFormat], dialect: str, text: str, name: str, arguments: Any, status: str
) -> None:
    chat = formats[dialect]
    stop = not text.endswith("<|call|>")
    (call,) = read(chat, text, stop=stop).tool_calls
    assert (call.name, call.arguments, call.status) == (name, arguments, status)
    if status == "ok":
        tools = [{"name": "other"}]
        assert [call.status for call in read(chat, text, tools, stop=stop).tool_calls] == ["unknown_tool"]


@pytest.mark.parametrize("dialect", sorted(CALL))
def test_text_before_a_call_is_content(formats: dict[str, ChatFormat], dialect: str) -> None:
    chat = formats[dialect]
    before = "<|channel|>commentary<|message|>Now.<|end|><|start|>assistant" if dialect == "harmony" else "Now.\n"
    text = before + CALL[dialect]
    message = read(chat, text, stop=dialect != "harmony")
    assert message.content == "Now."
    (call,) = message.tool_calls
    assert (call.name, call.arguments, call.status) == ("look", {"a": "b"}, "ok")
    start, end = call.tokens
    ids = chat._tokenizer.encode(text).tolist()
    expected = "<|start|>assistant" + CALL[dialect] if dialect == "harmony" else CALL[dialect]
    assert chat.decode(ids[start:end]) == expected


SEVERAL = {
    "deepseek": "<｜tool▁calls▁begin｜>{0}\n{0}<｜tool▁calls▁end｜>",
    "kimi": "<|tool_calls_section_begin|>{0}{0}<|tool_calls_section_end|>",
    "llama": "{0}; {0}",
    "harmony": "{0}<|start|>assistant{0}",
}


@pytest.mark.parametrize("dialect", sorted(CALL))
def test_several_calls_are_read_one_by_one_and_nothing_of_them_is_content(
    formats: dict[str, ChatFormat], dialect: str
) -> None:
    chat = formats[dialect]
    text = SEVERAL.get(dialect, "{0}\n{0}").format(CALL[dialect])
    ids = chat._tokenizer.encode(text).tolist()
    message = chat.parse(ids)
    assert message.content == ""
    assert [(call.name, call.status) for call in message.tool_calls] == [("look", "ok")] * 2
    for call in message.tool_calls:
        assert chat.decode(ids[slice(*call.tokens)]).strip().removeprefix("<|start|>assistant") == CALL[dialect]


def test_an_array_is_split_between_its_calls(formats: dict[str, ChatFormat]) -> None:
    chat = formats["mistral"]
    text = '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abc"}, {"name": 1}, {"name": "g", "arg'
    first, second, third = read(chat, text, stop=False).tool_calls
    assert (first.name, first.id, first.status) == ("f", "abc", "ok")
    assert (second.status, third.status, third.raw) == ("missing_name", "unclosed", '{"name": "g", "arg')
    ids = chat._tokenizer.encode(text).tolist()
    assert chat.decode(ids[: first.tokens[1]]).startswith('[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abc"}')
    assert read(chat, "[TOOL_CALLS][]Done.").content == "Done."


def test_ids_of_calls_are_kept_as_drawn(formats: dict[str, ChatFormat]) -> None:
    (call,) = read(formats["kimi"], CALL["kimi"]).tool_calls
    assert call.id == "functions.look:0"
    (call,) = read(formats["mistral"], "[TOOL_CALLS]f[CALL_ID]a1[ARGS]{}").tool_calls
    assert call.id == "a1"
    assert read(formats["deepseek"], CALL["deepseek"]).tool_calls[0].id == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": 42}',
        '{"name": "Bob", "age": 3}',
        'Use {"name": "f", "parameters": as you like.',
        'The form is {"name": } and {"x"}.',
        "{",
    ],
)
def test_json_that_is_no_call_stays_content(formats: dict[str, ChatFormat], text: str) -> None:
    assert read(formats["llama"], text) == AssistantMessage(text)


def test_a_bare_call_is_found_behind_text_and_text_behind_it(formats: dict[str, ChatFormat]) -> None:
    message = read(formats["llama"], 'So {"x": 1}: {"name": "f", "parameters": {}} and {"name": "g"} more.')
    assert message.content == 'So {"x": 1}:  and {"name": "g"} more.'
    assert [call.name for call in message.tool_calls] == ["f"]


# ---- reasoning

PARTS = (
    "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|start|>assistant"
    "<|channel|>commentary<|message|>c<|end|><|start|>assistant<|channel|>final<|message|>d"
)


@pytest.mark.parametrize(
    ("dialect", "text", "reasoning", "content", "closed"),
    [
        ("mistral", "[THINK]Hm.[/THINK]Now.", "Hm.", "Now.", True),
        ("mistral", "<think>Hm.</think>Now.", "Hm.", "Now.", True),
        ("mistral", "[THINK]Hm.", "Hm.", "", False),
        ("mistral", "Hm.[/THINK]Now.", "Hm.", "Now.", True),
        ("gemma", "<|channel>thought\nHm.\n<channel|>Now.", "Hm.", "Now.", True),
        ("gemma", "<|channel>thought\nHm.", "Hm.", "", False),
        ("gemma", "<|channel>thought", "", "", False),
        ("gemma", "thoughtful<channel|>Now.", "thoughtful", "Now.", True),
        ("gemma", "thought\nHm.<channel|>Now.", "Hm.", "Now.", True),
        ("llama", '<think>{"name": "f"}</think>Now.', '{"name": "f"}', "Now.", True),
        ("deepseek", "Hm.</think>Now.", "Hm.", "Now.", True),
        ("kimi", "<think>Hm.</think>Now.", "Hm.", "Now.", True),
        ("harmony", "<|channel|>analysis<|message|>Hm.<|end|>", "Hm.", "", True),
        ("harmony", "<|channel|>analysis<|message|>Hm.", "Hm.", "", False),
        ("harmony", "<|channel|>analysis", "", "", False),
        ("harmony", PARTS, "a\nb", "c\nd", True),
        ("harmony", "Plain, to=functions.f text", None, "Plain, to=functions.f text", True),
        ("harmony", "<|start|>assistant", None, "", True),
    ],
)  # fmt: skip
def test_reasoning_is_kept_apart(
    formats: dict[str, ChatFormat], dialect: str, text: str, reasoning: str | None, content: str, closed: bool
) -> None:
    for stop in (False, True):
        message = read(formats[dialect], text, stop=stop)
        assert (message.reasoning, message.content, message.reasoning_closed) == (reasoning, content, closed)
        assert message.tool_calls == ()


def test_a_prompt_that_opens_reasoning_is_known(make_format: Callable[..., ChatFormat]) -> None:
    template = MINIMAL + "{% if add_generation_prompt %}<think>\n{% endif %}"
    chat = make_format(template, (), ("<|im_end|>",))
    assert read(chat, "Hm.") == AssistantMessage("", reasoning="Hm.", reasoning_closed=False)
    assert read(chat, "Hm.</think>Now.") == AssistantMessage("Now.", reasoning="Hm.")
    assert read(chat, f"{CALL['hermes']}</think>Now.").tool_calls == ()
    closed = make_format(template.replace("<think>\n", "<think>\n\n</think>\n\n"), (), ("<|im_end|>",))
    assert read(closed, "Now.") == AssistantMessage("Now.")
    refuses = MINIMAL + "{% if add_generation_prompt %}{{ raise_exception('no') }}{% endif %}"
    assert read(make_format(refuses, (), ("<|im_end|>",)), "Now.") == AssistantMessage("Now.")


# ---- quotations


def test_a_delimiter_in_other_tokens_is_text_where_its_own_token_stands_too(
    make_format: Callable[..., ChatFormat],
) -> None:
    chat = make_format(MINIMAL, (), ("<|im_end|>",))
    body = '{"name": "f", "arguments": {"a": "</tool_call><tool_call></think>"}}'
    ids = [*chat.encode("Not <tool_call> but "), *chat._tokenizer.encode("<tool_call>"), *chat.encode(body)]
    message = chat.parse([*ids, *chat._tokenizer.encode("</tool_call>")])
    assert message.content == "Not <tool_call> but"
    assert [call.arguments for call in message.tool_calls] == [{"a": "</tool_call><tool_call></think>"}]


def test_spelled_delimiters_count_where_no_token_of_theirs_was_drawn(make_format: Callable[..., ChatFormat]) -> None:
    chat = make_format(MINIMAL, (), ("<|im_end|>",))
    assert [call.name for call in chat.parse(chat.encode(CALL["hermes"])).tool_calls] == ["look"]


# ---- which dialect


@pytest.mark.parametrize(
    ("literals", "tokens", "name"),
    [
        (["<tool_call>"], [], "hermes"),
        (["<tool_call>\n<function=", "<parameter="], [], "qwen_xml"),
        (["<tool_call>", "<arg_key>", "<arg_value>"], [], "glm"),
        (['{"name": "', '"parameters": '], [], "llama"),
        (["<tool_call>"], ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"], "hermes"),
        ([], ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"], "deepseek"),
        ([], ["<|channel|>", "<|message|>"], "harmony"),
        ([], ["<|python_tag|>"], "llama"),
        ([], ["[TOOL_CALLS]"], "mistral"),
        ([], [], "hermes"),
    ],
)
def test_the_dialect_is_told_by_the_template_and_else_by_the_tokens(
    literals: list[str], tokens: list[str], name: str
) -> None:
    assert find_dialect(literals, tokens).name == name


def test_a_dialect_can_be_asked_for(make_format: Callable[..., ChatFormat]) -> None:
    chat = make_format(MINIMAL, (), ("<|im_end|>",), "qwen_xml")
    assert chat.dialect == "qwen_xml"
    assert "dialect='qwen_xml'" in repr(chat)
    with pytest.raises(UnknownName, match="did you mean qwen_xml"):
        make_format(MINIMAL, (), ("<|im_end|>",), "qwenxml")


def test_names_of_dialects_are_unique() -> None:
    assert len({dialect.name for dialect in DIALECTS}) == len(DIALECTS)
