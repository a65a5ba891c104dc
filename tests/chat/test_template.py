"""A template gives the text that transformers gives, and whatever it cannot do is a refusal."""

import datetime as dt
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import ChatFormat, Message
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.errors import ChatError

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at a <place> & say “what” is there",
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
        },
    },
    {"type": "function", "function": {"name": "wait", "parameters": {}}},
]
ARGUMENTS = {"at": "dësk 'a' \"b\" <c>", "if": "> 5", "|>": ["</a>"]}
CALL = {"type": "function", "id": "call00001", "function": {"name": "look", "arguments": ARGUMENTS}}
OTHER = {"type": "function", "id": "call00002", "function": {"name": "wait", "arguments": {}}}

USER = {"role": "user", "content": "Hi there.\n"}
SAID = {"role": "assistant", "content": " I look.  "}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "a lamp", "tool_call_id": "call00001", "name": "look"}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "user": [USER],
    "system": [{"role": "system", "content": "Be brief."}, USER],
    "two users": [USER, USER],
    "turns": [USER, SAID, {"role": "user", "content": "Go on."}],
    "two systems": [{"role": "system", "content": "A."}, USER, SAID, {"role": "system", "content": "B."}, USER],
    "call": [USER, CALLING, RESULT],
    "text and call": [USER, {**CALLING, "content": "Now I look."}, RESULT, SAID, USER],
    "two calls": [USER, {**CALLING, "tool_calls": [CALL, OTHER]}, RESULT, {**RESULT, "tool_call_id": "call00002"}],
    "calls over turns": [USER, CALLING, RESULT, SAID, USER, CALLING, RESULT],
    "reasoning": [USER, {**SAID, "reasoning_content": "\nHm, so.\n"}, USER],
    "reasoning and call": [USER, {**CALLING, "reasoning_content": "Hm."}, RESULT],
    "unicode": [{"role": "user", "content": "日本語 é e\u0301 \u200b \x00 \ufffd 🤖 \ue000"}],
    "empty": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": " "}],
}


@functools.cache
def theirs(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def reference(folder: Path, messages: list[dict[str, Any]], **kwargs: Any) -> tuple[str, list[int]]:
    """Return the text that transformers renders, and its ids."""
    text = theirs(folder).apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **kwargs)
    return text, theirs(folder)(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_qwen_prompts_are_those_of_transformers(
    unpack: Callable[[str], Path], name: str, tools: list[dict[str, Any]] | None
) -> None:
    folder = unpack(name)
    chat = ChatFormat.from_pretrained(folder)
    for title, messages in CONVERSATIONS.items():
        text, ids = reference(folder, messages, tools=tools)
        context = chat.open(messages, tools)
        assert chat.decode(context.ids) == text.replace("e\u0301", "é"), title
        assert context.ids.tolist() == ids, title


def test_template_kwargs_reach_the_template(unpack: Callable[[str], Path], qwen3: ChatFormat) -> None:
    folder = unpack("qwen3")
    chat = ChatFormat.from_pretrained(folder, template_kwargs={"enable_thinking": False})
    text, ids = reference(folder, CONVERSATIONS["turns"], enable_thinking=False)
    assert chat.open(CONVERSATIONS["turns"]).ids.tolist() == ids
    assert text.endswith("<think>\n\n</think>\n\n")
    assert chat.fingerprint != qwen3.fingerprint


def test_deepseek_prompts_are_those_of_transformers_with_one_begin_token(unpack: Callable[[str], Path]) -> None:
    folder = unpack("deepseek_v3")
    chat = ChatFormat.from_pretrained(folder)
    for title in ("user", "system", "two users", "turns", "two systems", "unicode", "empty"):
        text, ids = reference(folder, CONVERSATIONS[title])
        context = chat.open(CONVERSATIONS[title])
        assert chat.decode(context.ids) == text, title
        assert context.ids.tolist() == ids, title
        assert ids.count(ids[0]) == 1


def test_calls_are_given_to_deepseek_in_the_form_that_it_writes(deepseek_v3: ChatFormat) -> None:
    """Its template wants no content and arguments as text, and would leave the calls out otherwise."""
    expected = (
        "<|begin of sentence|><|User|>Go on."
        "<|Assistant|><|tool calls begin|><|tool call begin|>function<|tool sep|>look\n"
        '```json\n{"at": "desk"}\n```<|tool call end|>'
        "<|tool outputs begin|><|tool output begin|>a lamp<|tool output end|><|tool outputs end|>"
    )
    for arguments in ({"at": "desk"}, '{"at": "desk"}'):
        call = {**CALL, "function": {"name": "look", "arguments": arguments}}
        for content in ("", None):
            asking = {"role": "assistant", "content": content, "tool_calls": [call]}
            context = deepseek_v3.open([{"role": "user", "content": "Go on."}, asking, RESULT])
            assert deepseek_v3.decode(context.ids).replace("\uff5c", "|").replace("\u2581", " ") == expected
    with pytest.raises(ChatError, match="leaves out tool calls"):
        deepseek_v3.open([USER, {**CALLING, "content": "Now I look."}, RESULT])


SNIPPETS = [
    "{% for m in messages %}{% if loop.index0 == 2 %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{% break %}{% endif %}{% endfor %}",
    "{% for m in messages %}\n    {% if true %}\n  {{ m.content }}\n    {% endif %}\n{% endfor %}\n",
    "{% for m in messages %}{% generation %}{% set x = m.content %}{{ x }}{% endgeneration %}[{{ x }}]{% endfor %}",
    "{% set x = 1 %}{% for m in messages %}{% generation %}{{ x }}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}{{ {'b': 1, 'a': '<é>'} | tojson(sort_keys=true) }}",
    "{{ ['<é>', none, true, 1.0] | tojson(separators=(',', ':'), ensure_ascii=true) }}{{ messages[1].content }}",
    "{{ documents is none }}{{ tools is none }}{{ add_generation_prompt }}{{ messages[1].content }}",
    "{{ eos_token }}{{ bos_token }}{{ nothing }}{{ messages[1].content }}",
    "{% macro say(m) %}[{{ m.role }}]{% endmacro %}{% for m in messages %}{{ say(m) }}{{ m.content }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m.content ~ ns.n }}{% endfor %}",
    "{{ strftime_now('%Y') | length }}{{ messages[1].content | trim }}{{ messages[::-1][0].content }}",
    "{{- messages[1]['content'] if messages[1]['missing'] is not defined else 'x' -}}   {# note #}\n",
]


@pytest.mark.parametrize("source", SNIPPETS)
def test_every_part_of_the_language_works_as_in_transformers(tiny: Callable[..., ChatFormat], source: str) -> None:
    messages = [USER, SAID, {"role": "user", "content": "Go on."}]
    chat = tiny(source)
    expected, _ = reference(Path(chat.reference), messages, chat_template=source)
    template = ChatTemplate(source, {"eos_token": "<|endoftext|>"})
    assert template.render(messages, None, generation=True) == expected


def test_the_date_is_that_of_today() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", {})
    before = dt.datetime.now().astimezone().strftime("%d %b %Y")
    rendered = template.render([], None, generation=False)
    assert rendered in {before, dt.datetime.now().astimezone().strftime("%d %b %Y")}


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content.__class__.__mro__ }}",
        "{{ ''.__class__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ 1 // 0 }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[9].content.strip() }}",
        "{{ [].pop() }}",
        "{{ range(10 ** 9) | list }}",
        "{{ messages | tojson(bad=2) }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ strftime_now(1) }}",
    ],
)
def test_whatever_goes_wrong_inside_a_template_is_its_refusal(source: str) -> None:
    with pytest.raises(ChatError, match=r"refuses.*roles user"):
        ChatTemplate(source, {}).render([USER], None, generation=True)


@pytest.mark.parametrize("source", ["{% for", "{{ x", "{% nosuch %}", "{{ 'x' | nosuch }}", "{% generation %}"])
def test_a_template_that_is_no_program_is_refused_at_once(source: str) -> None:
    with pytest.raises(ChatError, match="does not compile"):
        ChatTemplate(source, {})


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_a_variable_cannot_stand_for_the_conversation(name: str) -> None:
    with pytest.raises(ChatError, match=name):
        ChatTemplate("x", {name: 1})


def test_literals_are_what_the_template_can_write_of_its_own() -> None:
    template = ChatTemplate("a{{ '<|' + m + '|>' }}{% if x == 'b' %}c{% endif %}", {"bos_token": "<s>", "n": 3})
    assert {"a", "<|", "|>", "c", "<s>"} <= set(template.literals)


EACH = "{%% for m in messages %%}%s{%% endfor %%}"
OWN_FORM = (
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("each", "alone", "with_text"),
    [
        pytest.param("{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}", True, True, id="both"),
        pytest.param("{{ m.content }}", False, False, id="no calls"),
        pytest.param(OWN_FORM, True, True, id="arguments as text"),
        pytest.param("{{ m.tool_calls | tojson if m.content is none else m.content }}", True, False, id="no content"),
        pytest.param("{{ m.tool_calls | tojson if m.tool_calls else m.content }}", True, False, id="calls only"),
    ],
)
def test_a_template_is_asked_whether_it_writes_calls(each: str, alone: bool, with_text: bool) -> None:
    template = ChatTemplate(EACH % each, {})
    assert (template.writes_calls(with_text=False), template.writes_calls(with_text=True)) == (alone, with_text)


def test_calls_that_a_template_would_drop_are_never_dropped_silently(tiny: Callable[..., ChatFormat]) -> None:
    chat = tiny("{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}")
    chat.open([USER, SAID, USER])
    with pytest.raises(ChatError, match=r"leaves out tool calls.*look"):
        chat.open([USER, CALLING, RESULT])


# ---- the builtin template


def rendered(builtin: ChatFormat, messages: list[Any], tools: list[Any] | None = None) -> str:
    return builtin.decode(builtin.open(messages, tools).ids)


def test_the_builtin_template_writes_chatml(builtin: ChatFormat) -> None:
    assert rendered(builtin, CONVERSATIONS["two systems"]) == (
        "<|im_start|>system\nA.<|im_end|>\n"
        "<|im_start|>user\nHi there.\n<|im_end|>\n"
        "<|im_start|>assistant\n I look.  <|im_end|>\n"
        "<|im_start|>system\nB.<|im_end|>\n"
        "<|im_start|>user\nHi there.\n<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("system", ["", "Be brief."])
def test_builtin_tools_stand_in_the_system_message_with_its_text(builtin: ChatFormat, system: str) -> None:
    messages = [{"role": "system", "content": system}, USER] if system else [USER]
    text = rendered(builtin, messages, TOOLS)
    head, _, rest = text.partition("<|im_end|>\n")
    assert head.startswith("<|im_start|>system\n" + system)
    for tool in TOOLS:
        assert ChatTemplate("{{ messages[0] | tojson }}", {}).render([tool], None, generation=False) in head
    assert rest == "<|im_start|>user\nHi there.\n<|im_end|>\n<|im_start|>assistant\n"
    assert text.count("<|im_start|>system") == 1


def test_builtin_calls_and_reasoning_are_what_parse_reads(builtin: ChatFormat) -> None:
    said = {"role": "assistant", "content": "Now.", "reasoning_content": "Hm.", "tool_calls": [CALL, OTHER]}
    context = builtin.open([USER, said, RESULT])
    text = builtin.decode(context.ids)
    turn = text.split("<|im_start|>assistant\n")[1].removesuffix("<|im_end|>\n<|im_start|>tool\na lamp<|im_end|>\n")
    read = builtin.parse(builtin.encode_turn(turn), TOOLS)
    assert (read.content, read.reasoning) == ("Now.", "Hm.")
    assert [(call.name, call.arguments, call.status) for call in read.tool_calls] == [
        ("look", ARGUMENTS, "ok"),
        ("wait", {}, "ok"),
    ]


def test_builtin_control_tokens_of_reasoning_and_calls_are_single_ids(builtin: ChatFormat) -> None:
    said = Message.of({"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [CALL]})
    ids = [index for index in builtin.open([Message.of(USER), said]).ids.tolist() if index in builtin.control_ids]
    assert [builtin.token_text(index) for index in ids] == [
        *["<|im_start|>", "<|im_end|>"],
        *["<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>"],
        "<|im_start|>",
    ]
