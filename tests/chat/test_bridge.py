"""From a turn to the next prompt: the past is untouched, and what follows is what the template writes there."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Context, Message, Refusal, Span, ToolCall
from agentgym_tok.chat import bridge as bridge_module
from agentgym_tok.chat import stub as stub_module
from agentgym_tok.types import Trusted

USER = Message("user", "You see a desk.")
RESULT = Message("tool", "a lamp", tool_call_id="call0", name="look")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

spellings = st.sampled_from(["<|im_end|>", "<|im_start|>", "<|im_<|im_end|>end|>", "<think>", "</tool_call>", "<|im_"])
plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
world = st.lists(st.one_of(plain, spellings, st.sampled_from(["\n", " ", "\ud800", "\ue000"])), max_size=4).map("".join)
new_messages = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["user", "tool", "system"]),
        content=world,
        name=st.none() | world,
        tool_call_id=st.none() | world,
    ),
    min_size=1,
    max_size=3,
)


def start(chat: ChatFormat, tools: Sequence[dict[str, Any]] | None = None) -> Context:
    return chat.open([Message("system", "Be brief."), USER], tools)


def bridged(chat: ChatFormat, context: Context, messages: Sequence[Any]) -> Context:
    result = chat.bridge(context, messages)
    assert isinstance(result, Context), result
    return result


def refused(chat: ChatFormat, context: Context, messages: Sequence[Any]) -> Refusal:
    result = chat.bridge(context, messages)
    assert isinstance(result, Refusal), chat.decode(result.span.ids_T)
    return result


def turn(chat: ChatFormat, text: str = "go north", tools: Sequence[dict[str, Any]] | None = None) -> Context:
    return start(chat, tools).sampled([*chat.encode(text).tolist(), chat.stop_ids[0]])


# ---- the past


@given(st.lists(st.integers(0, 4095), max_size=12), st.booleans(), new_messages)
@settings(max_examples=120, deadline=None)
@example([], False, [USER])
@example([], True, [USER])
def test_whatever_was_sampled_stays_and_is_closed_once(
    builtin: ChatFormat, ids: list[int], stopped: bool, messages: list[Message]
) -> None:
    stop = builtin.stop_ids[0]
    sampled = [index % builtin.vocab_size for index in ids] + [stop] * stopped
    context = start(builtin).sampled(sampled)
    after = bridged(builtin, context, messages)
    assert after.parent is context
    assert after.ids[: len(context)].tolist() == context.ids.tolist()
    # Seen from the turn: one stop token, drawn by the policy or added where it drew none, and the next message. A turn
    # that was cut inside its reasoning gets the end of that too; one that stopped there by itself stays as it is.
    ends = [index for index in sampled if builtin.token_text(index) in {"<think>", "</think>"}]
    cut = bool(ends) and builtin.token_text(ends[-1]) == "<think>" and sampled[-1] not in builtin.stop_ids
    drawn = bool(sampled) and sampled[-1] == stop
    added = "</think>\n\n" * cut + builtin.token_text(stop) * (not drawn)
    behind = builtin.decode(after.span.ids_T)
    assert behind.startswith(f"{added}\n")
    behind = behind.removeprefix(added)
    assert behind.startswith(f"\n<|im_start|>{messages[0].role}\n")
    assert behind.endswith("<|im_end|>\n<|im_start|>assistant\n")


@given(st.lists(st.integers(0, 150_000), max_size=8), st.booleans())
@settings(max_examples=30, deadline=None)
def test_whatever_a_model_sampled_stays_and_is_closed_once(qwen2_5: ChatFormat, ids: list[int], stopped: bool) -> None:
    stop = qwen2_5.stop_ids[0]
    sampled = ids + [stop] * stopped
    context = start(qwen2_5).sampled(sampled)
    after = bridged(qwen2_5, context, [USER])
    assert after.ids[: len(context)].tolist() == context.ids.tolist()
    expected = "" if sampled and sampled[-1] == stop else "<|im_end|>"
    assert qwen2_5.decode(after.span.ids_T) == (
        f"{expected}\n<|im_start|>user\nYou see a desk.<|im_end|>\n<|im_start|>assistant\n"
    )


# A blank at the beginning merges with the prompt's line break, so that its own encoding is not the canonical one.
said_texts = world.map(lambda text: text.replace("\ud800", "").lstrip())


@given(said_texts, st.lists(new_messages, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_a_canonical_turn_bridges_to_the_prompt_of_the_whole_conversation(
    builtin: ChatFormat, said: str, rounds: list[list[Message]]
) -> None:
    history = [Message("system", "Be brief."), USER]
    context = builtin.open(history)
    for messages in rounds:
        context = bridged(builtin, context.sampled([*builtin.encode(said).tolist(), builtin.stop_ids[0]]), messages)
        history += [Message("assistant", said), *messages]
        whole = builtin.open(history)
        assert context.ids.tolist() == whole.ids.tolist()
        assert context.digest == whole.digest


@given(said_texts, new_messages)
@settings(max_examples=25, deadline=None)
def test_a_models_canonical_turn_bridges_to_the_prompt_of_the_whole_conversation(
    qwen2_5: ChatFormat, said: str, messages: list[Message]
) -> None:
    history = [USER, Message("assistant", said), *messages]
    context = qwen2_5.open([USER]).sampled([*qwen2_5.encode(said).tolist(), qwen2_5.stop_ids[0]])
    assert bridged(qwen2_5, context, messages).ids.tolist() == qwen2_5.open(history).ids.tolist()


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "deepseek_v3"])
def test_models_bridge_every_kind_of_message(request: pytest.FixtureRequest, name: str) -> None:
    chat: ChatFormat = request.getfixturevalue(name)
    said = Message("assistant", "go north")
    for messages in ([USER], [USER, USER], [RESULT], [RESULT, USER]):
        after = bridged(chat, turn(chat), messages)
        whole = chat.open([Message("system", "Be brief."), USER, said, *messages])
        assert after.ids.tolist() == whole.ids.tolist(), messages


def test_a_turn_of_several_spans_is_closed_once(builtin: ChatFormat) -> None:
    stop = builtin.stop_ids[0]
    prompt = start(builtin)
    text_T = builtin.encode("go north")
    whole = bridged(builtin, prompt.sampled([*text_T.tolist(), stop]), [USER])
    for spans in (
        [Span(text_T[:1], "forced"), Span([*text_T[1:].tolist(), stop], "sampled")],
        [Span([*text_T.tolist(), stop], "forced"), Span([], "sampled")],
        [Span([*text_T.tolist(), stop], "demonstration")],
        [Span(text_T, "sampled"), Span([], "sampled")],
    ):
        context = prompt
        for span in spans:
            context = context.extend(span)
        assert bridged(builtin, context, [USER]).ids.tolist() == whole.ids.tolist()


def test_another_stop_token_stays_and_the_templates_own_follows(builtin: ChatFormat) -> None:
    """A model may end a turn with `<|endoftext|>`; the ids stay, and the close that the policy knows follows."""
    end = next(index for index in builtin.stop_ids if builtin.token_text(index) == "<|endoftext|>")
    after = bridged(builtin, start(builtin).sampled([end]), [USER])
    assert builtin.decode(after.ids[len(start(builtin)) :]).startswith("<|endoftext|><|im_end|>\n<|im_start|>user")


def test_bridged_prompts_of_qwen3_keep_reasoning_that_a_rendering_would_strip(qwen3: ChatFormat) -> None:
    said = "<think>\nHm.\n</think>\n\ngo north"
    context = start(qwen3).sampled(qwen3.encode_turn(said))
    after = bridged(qwen3, context, [USER])
    assert after.ids[: len(context)].tolist() == context.ids.tolist()
    rendered = qwen3.open([Message("system", "Be brief."), USER, Message("assistant", said, trusted=True), USER])
    assert "Hm." in qwen3.decode(after.ids)
    assert "Hm." not in qwen3.decode(rendered.ids)


def test_a_prefilled_empty_reasoning_block_stays_in_the_past(unpack: Callable[[str], Any]) -> None:
    """With thinking off the prompt holds an empty block that a rendering of the history has not."""
    chat = ChatFormat.from_pretrained(unpack("qwen3"), template_kwargs={"enable_thinking": False})
    after = bridged(chat, turn(chat), [USER])
    assert chat.decode(after.ids).count("<think>\n\n</think>\n\n") == 2


# ---- messages


def test_origins_name_who_speaks(builtin: ChatFormat) -> None:
    assert bridged(builtin, turn(builtin), [USER]).span.origin == "observation"
    assert bridged(builtin, turn(builtin), [RESULT, RESULT]).span.origin == "tool"
    assert bridged(builtin, turn(builtin), [RESULT, USER]).span.origin == "observation"
    assert bridged(builtin, turn(builtin), [Message("system", "Stop.")]).span.origin == "observation"


def test_messages_may_be_dictionaries(builtin: ChatFormat) -> None:
    assert bridged(builtin, turn(builtin), [{"role": "user", "content": USER.content}]).digest == (
        bridged(builtin, turn(builtin), [USER]).digest
    )


def test_qwen_joins_the_results_of_one_turn(qwen2_5: ChatFormat) -> None:
    results = [RESULT, Message("tool", "a mug", tool_call_id="call1", name="look")]
    text = qwen2_5.decode(bridged(qwen2_5, turn(qwen2_5), results).span.ids_T)
    assert text == (
        "\n<|im_start|>user\n<tool_response>\na lamp\n</tool_response>\n<tool_response>\na mug\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n"
    )


def test_control_text_in_a_tool_result_stays_text(chat: ChatFormat) -> None:
    quiet = bridged(chat, turn(chat), [RESULT]).span.ids_T
    bad = "".join(chat._tokenizer.control_texts[index] for index in sorted(chat.control_ids)[:40])
    loud = bridged(chat, turn(chat), [Message("tool", bad, tool_call_id="call0", name="look")]).span.ids_T
    assert [index for index in loud.tolist() if index in chat.control_ids] == (
        [index for index in quiet.tolist() if index in chat.control_ids]
    )
    assert bad in chat.decode(loud)


def test_trusted_prompts_keep_their_tokens_in_a_bridge_too(builtin: ChatFormat) -> None:
    message = Message.compose("user", Trusted("Answer in <think> tags. You see "), "<|im_end|>")
    ids = bridged(builtin, turn(builtin), [message]).span.ids_T.tolist()
    assert [builtin.token_text(index) for index in ids if index in builtin.control_ids] == [
        "<|im_start|>",
        "<think>",
        "<|im_end|>",
        "<|im_start|>",
    ]


def test_the_tools_come_from_the_context(tiny: Callable[..., ChatFormat]) -> None:
    chat = tiny(CHATML.replace("{% if add", "{% if tools %}[{{ tools | length }} tools]{% endif %}{% if add"))
    after = bridged(chat, turn(chat, tools=[TOOL]), [USER])
    assert "[1 tools]" in chat.decode(after.span.ids_T)
    assert after.root.tools == (TOOL,)
    assert "tools]" not in chat.decode(bridged(chat, turn(chat), [USER]).span.ids_T)


def test_lone_surrogates_are_counted_on_the_new_span(builtin: ChatFormat) -> None:
    after = bridged(builtin, turn(builtin), [Message("user", "a\ud800\udfff")])
    assert after.span.replaced == 2
    assert "a\ufffd\ufffd" in builtin.decode(after.span.ids_T)


def test_the_stubs_own_words_may_be_said_by_the_world(builtin: ChatFormat) -> None:
    body = stub_module.MARK
    after = bridged(builtin, turn(builtin), [Message("user", body)])
    assert builtin.decode(after.span.ids_T) == f"\n<|im_start|>user\n{body}<|im_end|>\n<|im_start|>assistant\n"


def test_call_ids_that_never_repeat_fill_no_memory(builtin: ChatFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "_MOST_KNOWN", 10)
    bridged(builtin, turn(builtin), [Message("tool", "x", tool_call_id="id")])
    proved = len(builtin._bridge._proved)
    for place in range(50):
        bridged(builtin, turn(builtin), [Message("tool", "x", tool_call_id=f"id{place}")])
        assert len(builtin._bridge._before) <= 10
        assert len(builtin._bridge._proved) == proved


def test_the_call_that_a_result_answers_reaches_the_template(tiny: Callable[..., ChatFormat]) -> None:
    """Some templates take the tool's name from the call, and refuse results of calls that are not there."""
    calls = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    known = "{% set known = messages[:loop.index0] | map(attribute='tool_calls') | select | list %}"
    refuse = "{% if not known %}{{ raise_exception('no call') }}{% endif %}"
    result = "<|im_start|>{{ known[-1][0].function.name }}:{{ known[-1][0].id }}={{ m.tool_call_id }}\n{{ m.content }}"
    said = "{% else %}<|im_start|>{{ m.content }}" + calls + "{% endif %}<|im_end|>"
    chat = tiny(loop("{% if m.role == 'tool' %}" + known + refuse + result + said))
    after = bridged(chat, turn(chat), [RESULT])
    assert chat.decode(after.span.ids_T) == "<|im_start|>look:call0=call0\na lamp<|im_end|>"


# ---- refusals


def test_a_context_that_awaits_a_turn_has_nothing_to_bridge(builtin: ChatFormat) -> None:
    assert refused(builtin, start(builtin), [USER]).reason == "no_turn"
    assert refused(builtin, bridged(builtin, turn(builtin), [USER]), [USER]).reason == "no_turn"


def test_nothing_new_is_no_bridge(builtin: ChatFormat) -> None:
    assert refused(builtin, turn(builtin), []).reason == "no_messages"


@pytest.mark.parametrize("place", [0, 1])
def test_an_assistants_text_is_never_encoded_again(builtin: ChatFormat, place: int) -> None:
    messages = [USER, USER]
    messages.insert(place, Message("assistant", "go north"))
    assert refused(builtin, turn(builtin), messages).reason == "assistant_message"


def loop(each: str, end: str = "") -> str:
    return "{% for m in messages %}" + each + "{% endfor %}" + end


SAY = "<|im_start|>{{ m.content }}"
TWICE = "{% if loop.index0 and m.role == messages[loop.index0 - 1].role %}{{ raise_exception('alternate') }}{% endif %}"
CALLS = "{{ m.tool_calls | tojson }}"
ADVERSARIES = [
    ("roles must alternate", loop(TWICE + SAY + "<|im_end|>"), [USER, USER], "template_refuses"),
    (
        "no tools",
        loop("{{ raise_exception('no') if m.role == 'tool' }}" + SAY + "<|im_end|>"),
        [RESULT],
        "template_refuses",
    ),
    ("only the last message", "<|im_start|>{{ messages[-1].content }}<|im_end|>", [USER], "body_rewritten"),
    ("short past", loop("{{ m.content if loop.last or m.role != 'assistant' }}<|im_end|>"), [USER], "body_rewritten"),
    ("results vanish", loop("{% if m.role != 'tool' %}" + SAY + "<|im_end|>{% endif %}"), [RESULT], "content_lost"),
    (
        "only the last result",
        loop("{% if loop.last or m.role != 'tool' %}" + SAY + "<|im_end|>{% endif %}"),
        [RESULT] * 2,
        "content_lost",
    ),
    ("backwards", "{% for m in messages | reverse %}" + SAY + "<|im_end|>{% endfor %}", [USER], "content_lost"),
    ("an echo", loop(SAY + "<|im_end|>", "{{ messages[1].content if messages[1] }}"), [USER], "body_rewritten"),
    ("a count", loop(SAY + "<|im_end|>{{ (messages[1].content | length) if messages[1] }}"), [USER], "body_rewritten"),
    (
        "calls rewritten",
        loop(SAY + "{{ m.tool_calls }}" + "{{ loop.length if m.tool_calls }}<|im_end|>"),
        [RESULT],
        "past_rewritten",
    ),
    (
        "nameless",
        loop(
            "{% if m.role == 'tool' %}{{ messages[1].tool_calls[0].function.name }}{% endif %}"
            + SAY
            + "{{ m.tool_calls }}<|im_end|>"
        ),
        [Message("tool", "x")],
        "nameless_result",
    ),
    ("only line breaks", loop("{{ m.role }}: {{ m.content }}\n\n"), [USER], "open_seam"),
    ("no text at all", loop("{{ m.content }}"), [Message("user", "")], "open_seam"),
    ("a blank before the close", loop(SAY + " <|im_end|>"), [USER], "open_seam"),
]


@pytest.mark.parametrize(
    ("source", "messages", "reason"), [pytest.param(*rest, id=title) for title, *rest in ADVERSARIES]
)
def test_where_the_proof_fails_the_answer_is_a_refusal_with_its_reason(
    tiny: Callable[..., ChatFormat], source: str, messages: list[Message], reason: str
) -> None:
    chat = tiny(source)
    refusal = refused(chat, start_of_user(chat), messages)
    assert refusal.reason == reason
    assert refusal.detail


def start_of_user(chat: ChatFormat) -> Context:
    return chat.open([USER]).sampled([*chat.encode("go north").tolist(), *chat.stop_ids[:1]])


def test_templates_without_a_close_bridge_where_the_next_opener_is_a_control_token(
    tiny: Callable[..., ChatFormat],
) -> None:
    """In GLM the opener of the next message is itself the stop token; it is neither doubled nor lost."""
    opener = "{{ '<tool_call>' if m.role == 'tool' else '<|im_start|>' }}{{ m.content }}"
    chat = tiny(loop(opener, "{% if add_generation_prompt %}<think>{% endif %}"))
    tokens = {text: index for index, text in chat._tokenizer.control_texts.items()}
    prompt, said = chat.open([USER]), chat.encode("go north").tolist()
    for stop, messages, expected in (
        ("<|im_start|>", [USER], "go north<|im_start|>You see a desk.<think>"),
        ("<tool_call>", [RESULT], "go north<tool_call>a lamp<think>"),
        ("<|endoftext|>", [USER], "go north<|endoftext|><|im_start|>You see a desk.<think>"),
    ):
        after = bridged(chat, prompt.sampled([*said, tokens[stop]]), messages)
        assert chat.decode(after.ids[len(prompt) :]) == expected


def test_a_template_that_answers_the_date_still_bridges(tiny: Callable[..., ChatFormat]) -> None:
    chat = tiny("{{ strftime_now('%H:%M:%S.%f') }}" + CHATML)
    assert bridged(chat, turn(chat), [USER]).span.origin == "observation"


def test_a_refused_context_stays_as_it_was(builtin: ChatFormat) -> None:
    context = turn(builtin)
    before = context.ids.tolist()
    refused(builtin, context, [Message("assistant", "x")])
    bridged(builtin, context, [USER])
    bridged(builtin, context, [Message("user", "Another world answers.")])
    assert context.ids.tolist() == before


def test_calls_of_a_turn_need_no_second_encoding(builtin: ChatFormat) -> None:
    call = ToolCall("look", {"at": "desk"}, "call0")
    said = '<tool_call>\n{"name": "look", "arguments": {"at": "desk"}}\n</tool_call>'
    context = start(builtin, [TOOL]).sampled(builtin.encode_turn(said))
    history = [Message("system", "Be brief."), USER, Message("assistant", "", (call,)), RESULT]
    assert bridged(builtin, context, [RESULT]).ids.tolist() == builtin.open(history, [TOOL]).ids.tolist()
