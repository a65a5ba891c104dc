"""What can be proved of plain messages: where a later rendering takes back an earlier one."""

from collections.abc import Callable
from typing import Any

import pytest

from agentgym_tok import ChatFormat, Message
from agentgym_tok.drift import Drift, DriftReport, audit
from agentgym_tok.errors import ChatError, ConfigError


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def chatml(body: str = "{{ m.content }}", end: str = "", prompt: str = "") -> str:
    return (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n" + body + "<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n" + prompt + "{% else %}" + end + "{% endif %}"
    )


def only(report: DriftReport) -> Drift:
    assert len(report.drifts) == 1, [(drift.kind, drift.turn, drift.detail) for drift in report.drifts]
    return report.drifts[0]


TWO = [user("Go."), said("I go."), user("And?"), said("I rest.")]


def test_a_template_that_keeps_the_past_has_no_drift(builtin: ChatFormat) -> None:
    report = audit(builtin, TWO)
    assert report.drifts == ()
    assert (report.turns, report.wrong, report.altered) == (2, 0, 0)
    assert report.sampled == sum(len(builtin.encode_turn(text)) for text in ("I go.", "I rest."))


def test_messages_of_both_shapes_and_conversations_without_answers(builtin: ChatFormat) -> None:
    assert audit(builtin, list(map(Message.of, TWO))).to_dict() == audit(builtin, TWO).to_dict()
    assert audit(builtin, [user("Go.")]).sampled == 0
    assert audit(builtin, []).turns == 0
    with pytest.raises(ChatError):
        audit(builtin, [{"content": "Go."}])


def test_reasoning_that_the_next_user_strips(qwen3: ChatFormat) -> None:
    report = audit(qwen3, [user("Go."), said("I go.", reasoning_content="It is late."), user("And?"), said("I rest.")])
    drift = only(report)
    assert (drift.kind, drift.turn, drift.text_T.tolist()) == ("reasoning_strip", 0, [])
    assert qwen3.decode(drift.exact_T) == "<think>\nIt is late.\n</think>\n\n"
    assert qwen3.decode(drift.before_T).endswith("<|im_start|>assistant\n")
    assert report.altered == drift.count
    assert report.wrong == drift.count + len(qwen3.encode_turn("I go."))  # the last turn stands in the last rendering


def test_reasoning_stays_while_tools_answer_and_goes_with_the_next_user(qwen3: ChatFormat) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "get", "arguments": '{"city": "Paris"}'}}
    loop = [
        user("Go."),
        said("", reasoning_content="It is late.", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "a", "content": "Rain."},
    ]
    assert audit(qwen3, [*loop, said("It rains.", reasoning_content="Oh.")]).drifts == ()
    report = audit(qwen3, [*loop, said("It rains.", reasoning_content="Oh."), user("And?")])
    assert [(drift.kind, drift.turn) for drift in report.drifts] == [("reasoning_strip", 0), ("reasoning_strip", 1)]
    assert report.wrong == report.sampled


def test_an_empty_block_on_the_last_turn_only(qwen3: ChatFormat) -> None:
    drift = only(audit(qwen3, TWO))
    assert (drift.kind, drift.turn, qwen3.decode(drift.exact_T)) == ("template", 0, "<think>\n\n</think>\n\n")


def test_a_generation_prompt_that_the_past_has_otherwise(tiny: Callable[..., ChatFormat]) -> None:
    chat = tiny(chatml(prompt="<think>\n\n</think>\n\n"))
    report = audit(chat, TWO)
    assert {(drift.kind, drift.turn) for drift in report.drifts} == {("template", 0), ("template", 1)}
    assert report.wrong == report.sampled  # each was sampled after a block that no later rendering has


def test_a_line_break_that_joins_the_generation_prompt(qwen2_5: ChatFormat) -> None:
    drift = only(audit(qwen2_5, [user("Go."), said("\nHi")]))
    assert (drift.kind, drift.turn, drift.exact_T.tolist(), drift.text_T.tolist()) == ("retokenised", 0, [198], [271])


def test_a_token_at_the_very_end_only(tiny: Callable[..., ChatFormat]) -> None:
    report = audit(tiny(chatml(end="{{ eos_token }}")), TWO)
    drift = only(report)
    assert (drift.kind, drift.turn, drift.exact_T.tolist()) == ("stop_token", 0, [0])


def test_an_id_that_two_calls_have(tiny: Callable[..., ChatFormat]) -> None:
    body = (
        "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ {'name': c.function.name, "
        "'arguments': c.function.arguments, 'id': c.id} | tojson }}</tool_call>{% endfor %}"
    )
    call = {"id": "get:0", "type": "function", "function": {"name": "get", "arguments": "{}"}}
    answer = {"role": "tool", "tool_call_id": "get:0", "content": "Rain."}
    messages = [user("Go."), said("", tool_calls=[call]), answer, said("", tool_calls=[call]), answer, said("Fine.")]
    report = audit(tiny(chatml(body)), messages)
    assert [(drift.kind, drift.turn) for drift in report.drifts] == [("call_id", 1)]
    other = {**call, "id": "get:1"}
    assert audit(tiny(chatml(body)), [*messages[:3], said("", tool_calls=[other]), *messages[4:]]).drifts == ()


def test_turns_that_a_template_refuses(tiny: Callable[..., ChatFormat]) -> None:
    chat = tiny(chatml("{% if m.content == 'No.' %}{{ raise_exception('never say no') }}{% endif %}{{ m.content }}"))
    report = audit(chat, [user("Go."), said("No."), user("And?"), said("Yes.")])
    assert [(drift.kind, drift.turn) for drift in report.drifts] == [("template", 0), ("template", 1)]
    assert all("never say no" in drift.detail for drift in report.drifts)
    assert report.sampled == report.wrong == report.altered > 0


def test_a_tokenizer_whose_control_tokens_swallow_blanks_is_encoded_whole(
    tiny: Callable[..., ChatFormat], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = tiny(chatml())
    before = audit(chat, TWO).to_dict()
    from agentgym_tok.drift.rendering import Rendering

    monkeypatch.setattr(Rendering, "is_exact", lambda _self: False)
    assert audit(chat, TWO).to_dict() == before


@pytest.mark.parametrize("given", [{"history": TWO}, {"streamed": {}}, {"logprobs": {}}, {"special_tokens": True}])
def test_evidence_beside_ids_is_refused_where_there_are_none(builtin: ChatFormat, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="an episode"):
        audit(builtin, TWO, **given)
