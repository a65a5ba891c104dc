"""A template's habits are found out by asking it."""

import json
from collections.abc import Callable

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.drift import probe_template
from agentgym_tok.errors import UnknownName

CALLS = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"


def chatml(body: str = "{{ m.content }}", *, head: str = "", end: str = "", close: str = "<|im_end|>\n") -> str:
    return (
        head
        + "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        + body
        + CALLS
        + close
        + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}"
        + end
        + "{% endif %}"
    )


def test_the_builtin_template_keeps_everything_but_the_spaces_of_arguments(builtin: ChatFormat) -> None:
    report = probe_template(builtin)
    assert report.broken == ("arguments of a call",)
    assert {probe.bridge for probe in report.probes} == {"", "ok"}
    assert (report.reference, report.fingerprint, report.dialect) == ("builtin", builtin.fingerprint, "hermes")
    assert report["arguments of a call"].detail == 'always written as {"at": "lamp", "lit": false}'
    assert report["stop token"].detail == "<|im_end|> is written; models stop on <|im_end|>, <|endoftext|>"
    with pytest.raises(UnknownName, match="tool result"):
        report["tool results"]
    assert json.loads(json.dumps(report.to_dict()))["probes"][0]["name"] == "user message"


def test_qwen3_strips_reasoning_and_moves_an_empty_block(qwen3: ChatFormat) -> None:
    report = probe_template(qwen3)
    assert (report["user message"].kind, report["tool result"].kind) == ("template", "template")
    assert report["user after reasoning"].kind == "reasoning_strip"
    assert report["tool result after reasoning"].preserves is True
    assert report["user after reasoning with tools"].kind == "reasoning_strip"
    assert {probe.bridge for probe in report.probes} == {"", "ok"}  # what the template cannot keep, the bridge does
    assert report["BOS"].detail == report["default system prompt"].detail == report["date"].detail == "none"


def test_qwen2_5_brings_a_system_prompt(qwen2_5: ChatFormat) -> None:
    report = probe_template(qwen2_5)
    assert report.broken == ("arguments of a call",)
    assert report["default system prompt"].detail == "'You are Qwen, created by Alibaba Cloud. ...'"


HABITS = {
    "trims": (chatml("{{ m.content | trim }}"), "blanks around a user's text", "whitespace", "trimmed"),
    "forgets results": (
        chatml("{% if m.role != 'tool' %}{{ m.content }}{% endif %}"),
        "tool result",
        "template",
        "left out: 'Result call00000.'",
    ),
    "tells the time": (chatml(head="{{ strftime_now('%d %b %Y') }}"), "date", "template", "written as it is when"),
    "ends the whole text": (chatml(end="{{ eos_token }}"), "stop token", "stop_token", "ends a conversation"),
    "writes Python": (
        chatml().replace("c.function | tojson", "c.function.arguments"),
        "arguments of a call",
        "arguments",
        "False is written for false",
    ),
    "forgets calls": (chatml().replace(CALLS, ""), "arguments of a call", "template", "left out"),
}


@pytest.mark.parametrize(("template", "name", "kind", "detail"), HABITS.values(), ids=HABITS)
def test_a_habit_is_found(tiny: Callable[..., ChatFormat], template: str, name: str, kind: str, detail: str) -> None:
    found = probe_template(tiny(template))[name]
    assert (found.preserves, found.kind) == (False, kind)
    assert detail in found.detail


def test_a_template_that_refuses_says_why(tiny: Callable[..., ChatFormat]) -> None:
    alternate = "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('take turns') }}{% endif %}"
    report = probe_template(tiny(chatml(alternate + "{{ m.content }}")))
    assert report["user message"].preserves is True
    refused = report["tool result"]
    assert (refused.preserves, refused.bridge) == (None, "template_refuses")
    assert "take turns" in refused.detail
    nothing = probe_template(
        tiny(
            chatml().replace("{% for m", "{% if messages | length > 2 %}{{ raise_exception('no') }}{% endif %}{% for m")
        )
    )
    assert nothing["user message"].preserves is None
    assert nothing["conversation"].preserves is None


@pytest.mark.parametrize(
    ("head", "bos", "kept", "detail"),
    [
        ("", "", True, "none"),
        ("{{ bos_token }}", "<|bos|>", False, "doubled when a rendering is encoded with special tokens"),
        ("", "<|bos|>", True, "added by the tokenizer alone"),
    ],
)
def test_a_bos_is_written_once_or_twice(
    tiny: Callable[..., ChatFormat], head: str, bos: str, kept: bool, detail: str
) -> None:
    found = probe_template(tiny(chatml(head=head), ["<|bos|>"], bos=bos))["BOS"]
    assert (found.preserves, found.detail) == (kept, detail)


def test_a_template_that_closes_nothing(tiny: Callable[..., ChatFormat]) -> None:
    found = probe_template(tiny(chatml(close="")))["stop token"]
    assert found.preserves is True
    assert (
        found.detail.startswith("none is written behind a turn; models stop on <|im_start|>")
        or "models stop on" in found.detail
    )
