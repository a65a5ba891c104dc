"""The first difference of two sequences has a name, from the ids alone where they tell."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.drift import DRIFT_CLASSES, classify
from agentgym_tok.errors import InvalidIds

# ids of a text as a policy may draw them, and as the text is encoded: Qwen2.5 and Qwen3
AGAIN = [
    ("hello", [71, 4791], [14990], "retokenised"),
    ("search[", [82, 2902, 58], [1836, 58], "retokenised"),
    (" Action", [220, 2512], [5586], "retokenised"),
    ("Thought:", [51, 71, 2450, 25], [84169, 25], "retokenised"),
    ("\n\n", [198, 198], [271], "retokenised"),
    ("<|im_end|>", [27, 91, 318, 6213, 91, 29], [151645], "control_token"),
    ("café", [66, 2577, 963], [924, 58858], "retokenised"),
    ("Observation", [46, 4840, 367], [37763, 367], "retokenised"),
    ("unbelievable", [84, 77, 31798, 23760], [359, 31798, 23760], "retokenised"),
    ("日本語", [8903, 21894, 102819], [101059, 102819], "retokenised"),
]
THINK = [("qwen3", [151668], "control_token"), ("qwen2_5", [522, 26865, 29], "retokenised")]
JOINED = [
    ("finish[]", [30150, 58, 60], [30150, 1294]),
    ("Thought:\n\n", [84169, 25, 271], [84169, 1447]),
    ('a"}\n', [64, 1, 532], [64, 16707]),
]
KEPT = [("search[cats", "].\n"), ("12", "34"), ("Observation:", " 3 cats")]


@pytest.mark.parametrize("model", ["qwen2_5", "qwen3"])
@pytest.mark.parametrize(("text", "drawn", "again", "kind"), AGAIN, ids=[text for text, *_ in AGAIN])
def test_ids_of_real_tokenizers_do_not_survive_text(
    model: str, text: str, drawn: list[int], again: list[int], kind: str, request: pytest.FixtureRequest
) -> None:
    chat: ChatFormat = request.getfixturevalue(model)
    assert chat.decode(drawn) == text
    assert chat.tokenize(text, add_special_tokens=True).tolist() == again
    assert classify(chat, drawn, again) == kind


@pytest.mark.parametrize(("model", "again", "kind"), THINK, ids=["qwen3", "qwen2_5"])
def test_a_spelled_end_of_reasoning_becomes_a_control_token_where_there_is_one(
    model: str, again: list[int], kind: str, request: pytest.FixtureRequest
) -> None:
    chat: ChatFormat = request.getfixturevalue(model)
    drawn = [27, 20439, 766, 29]
    assert chat.tokenize(chat.decode(drawn), add_special_tokens=True).tolist() == again
    assert classify(chat, drawn, again) == kind


@pytest.mark.parametrize(("text", "apart", "joined"), JOINED, ids=[text for text, *_ in JOINED])
def test_joined_segments_are_retokenised(qwen3: ChatFormat, text: str, apart: list[int], joined: list[int]) -> None:
    assert qwen3.encode(text).tolist() == joined
    assert classify(qwen3, apart, joined) == "retokenised"


@pytest.mark.parametrize(("one", "other"), KEPT)
def test_segments_that_join_cleanly_are_no_drift(qwen3: ChatFormat, one: str, other: str) -> None:
    apart = [*qwen3.encode(one), *qwen3.encode(other)]
    assert classify(qwen3, apart, qwen3.encode(one + other)) is None


def test_a_line_break_after_the_generation_prompt_joins_it(qwen3: ChatFormat) -> None:
    prompt = qwen3.open([{"role": "user", "content": "Hi"}]).ids.tolist()
    assert classify(qwen3, [*prompt, 198, 13048], [*prompt[:-1], 271, 13048]) == "retokenised"


# ---- by the ids alone, on the builtin vocabulary


def encode(chat: ChatFormat, text: str) -> list[int]:
    """Encode as a text pipeline does: what spells a control token is one."""
    ids: list[int] = chat.tokenize(text).tolist()
    return ids


HEAD = "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n"
CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>'
BY_IDS = {
    "whitespace at the end": (HEAD + "Yes. \n<|im_end|>", HEAD + "Yes.<|im_end|>", "whitespace"),
    "whitespace at the start": (HEAD + "\nYes.<|im_end|>", HEAD + "Yes.<|im_end|>", "whitespace"),
    "reasoning": (
        HEAD + "<think>\nI must go.\n</think>\n\nYes.<|im_end|>\n",
        HEAD + "Yes.<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n",
        "reasoning_strip",
    ),
    "an empty block": (HEAD + "Yes.<|im_end|>", HEAD + "<think>\n\n</think>\n\nYes.<|im_end|>", "other"),
    "spaces in arguments": (HEAD + CALL.replace(": ", ":"), HEAD + CALL, "arguments"),
    "Python's words": (HEAD + CALL.replace('"Paris"', "false"), HEAD + CALL.replace('"Paris"', "False"), "arguments"),
    "another argument": (HEAD + CALL, HEAD + CALL.replace("Paris", "Rome"), "history_edit"),
    "another tool": (HEAD + CALL, HEAD + CALL.replace("get", "look"), "history_edit"),
    "other words": (HEAD + "Yes, I go.<|im_end|>", HEAD + "No, I stay.<|im_end|>", "history_edit"),
    "another id": (
        HEAD + CALL.replace('"get"', '"get", "id": "functions.get:0"'),
        HEAD + CALL.replace('"get"', '"get", "id": "call_77"'),
        "call_id",
    ),
    "another stop token": (HEAD + "Yes.<|endoftext|>", HEAD + "Yes.<|im_end|>\n", "stop_token"),
    "no line break behind the stop token": (
        HEAD + "Yes.<|im_end|><|im_start|>user",
        HEAD + "Yes.<|im_end|>\n<|im_start|>user",
        "stop_token",
    ),
    "a stop token twice": (HEAD + "Yes.<|im_end|><|im_end|>\n", HEAD + "Yes.<|im_end|>\n", "stop_token"),
    "no stop token": (HEAD + "Yes.<|im_end|>\n<|im_start|>", HEAD + "Yes.\n<|im_start|>", "stop_token"),
    "a stop string": (HEAD + "Yes.\nObservation:", HEAD + "Yes.", "stop_token"),
    "no control tokens": (HEAD + "A <tool_call> B.<|im_end|>", HEAD + "A  B.<|im_end|>", "control_token"),
    "a control token twice at the start": (HEAD + "Yes.", "<|im_start|>" + HEAD + "Yes.", "bos"),
    "another prompt": (HEAD + "Yes.", HEAD.replace("Go.", "Stay.") + "Yes.", "other"),
}


@pytest.mark.parametrize(("exact", "text", "kind"), BY_IDS.values(), ids=BY_IDS)
def test_the_ids_tell(builtin: ChatFormat, exact: str, text: str, kind: str) -> None:
    assert classify(builtin, encode(builtin, exact), encode(builtin, text)) == kind


def test_ids_that_are_no_text_become_replacement_characters(builtin: ChatFormat) -> None:
    cut = [*builtin.encode("Yes"), *builtin.encode("語")[:1]]
    assert classify(builtin, cut, encode(builtin, builtin.decode(cut))) == "retokenised"


def test_ids_that_a_stream_lost(builtin: ChatFormat) -> None:
    turn = encode(builtin, CALL)
    assert classify(builtin, turn, turn[1:], streamed=True) == "stream_loss"
    assert classify(builtin, turn, turn[:-3], streamed=True) == "stream_loss"
    assert classify(builtin, turn, turn, streamed=True) is None


def test_log_probabilities_of_another_number(builtin: ChatFormat) -> None:
    turn = encode(builtin, CALL)
    assert classify(builtin, turn, turn, logprobs=len(turn) + 1) == "logprob_misalignment"
    assert classify(builtin, turn, turn, logprobs=len(turn)) is None


# ---- with what is known


def said(*contents: str, system: str = "Be brief.") -> list[dict[str, Any]]:
    roles = ["user", "assistant"] * len(contents)
    return [{"role": "system", "content": system}] + [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=False)
    ]


def rendered(chat: ChatFormat, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
    text = chat.apply_chat_template(messages, tools)
    return encode(chat, text)


MESSAGES = said("Go.", "Yes.", "Then?", "No.")
KNOWN = {
    "system": (said("Go.", "Yes.", "Then?", "No.", system="Be kind."), "system_swap"),
    "no system": (MESSAGES[1:], "system_swap"),
    "user": (said("Stay.", "Yes.", "Then?", "No."), "history_edit"),
    "assistant": (said("Go.", "Perhaps.", "Then?", "No."), "history_edit"),
    "later user": (said("Go.", "Yes.", "Now?", "No."), "history_edit"),
    "shorter": (said("Go.", "Yes."), "history_edit"),
    "blanks": (said("Go. ", "Yes.", "Then?", "No."), "whitespace"),
}


@pytest.mark.parametrize(("history", "kind"), KNOWN.values(), ids=KNOWN)
def test_the_messages_tell(builtin: ChatFormat, history: list[dict[str, Any]], kind: str) -> None:
    exact, text = rendered(builtin, MESSAGES), rendered(builtin, history)
    text += [] if len(text) >= len(exact) else encode(builtin, "<|im_start|>user\nSomething else.")
    assert classify(builtin, exact, text, messages=MESSAGES, history=history) == kind


TOOL_A, TOOL_B = ({"type": "function", "function": {"name": name, "parameters": {"q": 1, "r": 2}}} for name in "ab")
REORDERED = {"function": {"parameters": {"r": 2, "q": 1}, "name": "a"}, "type": "function"}


@pytest.mark.parametrize("tools", [[TOOL_B], [TOOL_A, TOOL_B], [TOOL_B, TOOL_A], [REORDERED], []])
@pytest.mark.parametrize("system", ["Be brief.", "Be kind."])
def test_swapped_tools_are_told_from_a_swapped_system_prompt(
    builtin: ChatFormat, tools: list[dict[str, Any]], system: str
) -> None:
    history = said("Go.", "Yes.", "Then?", "No.", system=system)
    exact, text = rendered(builtin, MESSAGES, [TOOL_A]), rendered(builtin, history, tools)
    found = classify(builtin, exact, text, messages=MESSAGES, tools=[TOOL_A], history=history, history_tools=tools)
    # The builtin template writes the system prompt first.
    assert found == ("tools_swap" if system == "Be brief." else "system_swap")


def test_messages_that_nobody_changed_leave_the_template(builtin: ChatFormat) -> None:
    exact = encode(builtin, HEAD + "Yes.<|im_end|>")
    text = encode(builtin, HEAD + "<think>\n\n</think>\n\nYes.<|im_end|>")
    assert classify(builtin, exact, text, messages=said("Go.", "Yes.")[1:]) == "template"


# ---- in general


IDS = st.lists(st.integers(0, 4095), max_size=40)


@given(IDS, IDS)
def test_any_two_sequences_have_a_class_exactly_where_they_differ(one: list[int], other: list[int]) -> None:
    found = classify(ChatFormat.builtin(), one, other)
    assert (found is None) == (other[: len(one)] == one)
    assert found is None or found in DRIFT_CLASSES


def test_ids_of_another_vocabulary_are_refused(builtin: ChatFormat) -> None:
    with pytest.raises(InvalidIds):
        classify(builtin, [4096], [1])
    with pytest.raises(InvalidIds):
        classify(builtin, [1], [1.5])


def test_a_bos_that_the_tokenizer_names(tiny: Callable[..., ChatFormat]) -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat = tiny(template, ["<|bos|>"], bos="<|bos|>")
    ids = chat.open([{"role": "user", "content": "Go."}]).ids.tolist()
    assert classify(chat, ids, [ids[0], *ids]) == "bos"
    assert classify(chat, ids, ids[1:]) == "bos"
    assert classify(chat, ids[1:], ids) == "bos"
