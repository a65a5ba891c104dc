"""What a text pipeline makes of an episode: every class from a real cause, at its place, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentgym_tok import ChatFormat, Message
from agentgym_tok.drift import Drift, DriftReport, audit
from agentgym_tok.errors import ConfigError, FingerprintMismatch, InvalidIds

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Go."}
CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris"}}\n</tool_call>'
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\nBODY{% for c in m.tool_calls or [] %}"
    "<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chatml(body: str = "{{ m.content }}") -> str:
    return CHATML.replace("BODY", body)


def kinds(report: DriftReport) -> list[tuple[str, int]]:
    return [(drift.kind, drift.turn) for drift in report.drifts]


def only(report: DriftReport) -> Drift:
    assert len(report.drifts) == 1, kinds(report)
    return report.drifts[0]


def letters(chat: ChatFormat, text: str) -> list[int]:
    return [index for letter in text for index in chat.encode(letter).tolist()]


# ---- no drift


@pytest.mark.parametrize("said", ["Hello there.", "<think>\nIt is late.\n</think>\n\nI go.", "spaces \n", CALL])
def test_what_survives_text_is_no_drift(builtin: ChatFormat, words: Any, said: str) -> None:
    played = words.play(builtin, [SYSTEM, USER], [words.tool]).say(said)
    played.tell(words.result("Rain.") if said == CALL else words.user("And?")).say("Fine.")
    report = audit(builtin, played.episode())
    assert kinds(report) == []
    assert (report.turns, report.wrong, report.altered, report.rate) == (2, 0, 0, 0.0)
    assert report.sampled == sum(len(turn.completion.ids_T) for turn in played.turns)


def test_nothing_at_all_is_no_drift(builtin: ChatFormat, words: Any) -> None:
    report = audit(builtin, words.play(builtin, [USER]).episode())
    assert (report.turns, report.sampled, report.rate, report.drifts) == (0, 0, 0.0, ())


# ---- each class


def test_ids_that_the_policy_cut_otherwise(builtin: ChatFormat, words: Any) -> None:
    turn = [*builtin.encode("I say "), *letters(builtin, "Hello"), *builtin.encode(" to all."), builtin.stop_ids[0]]
    played = words.play(builtin, [USER]).say(turn).tell(words.user("And?")).say("Fine.")
    report = audit(builtin, played.episode())
    start = len(played.turns[0].context)
    spoilt = [(drift.kind, drift.position) for drift in report.drifts]
    assert spoilt[0] == ("retokenised", start + len(builtin.encode("I say ")) - 1)  # " " joins the "H"
    assert {kind for kind, _ in spoilt} == {"retokenised"}
    assert sum(len(drift.exact_T) for drift in report.drifts) == report.altered
    assert report.wrong == report.sampled - (spoilt[0][1] - start)


def test_ids_of_the_prompt_that_an_engine_encoded_again(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [USER]).say("Fine.")
    turn = played.turns[0]
    loose = [1, *letters(builtin, "user\nGo."), 2, *turn.context.ids[-4:]]
    context = type(turn.context)(turn.context.root, replace(turn.context.span, ids_T=np.array(loose, np.int32)))
    report = audit(builtin, replace(played.episode(), turns=(replace(turn, context=context),)))
    assert {kind for kind, _ in kinds(report)} == {"retokenised"}
    assert (report.altered, report.wrong) == (0, report.sampled)  # every sampled id stands after another past


def test_a_character_that_the_token_limit_cut(builtin: ChatFormat, words: Any) -> None:
    cut = [*builtin.encode("Hello "), *builtin.encode("語")[:1]]
    played = words.play(builtin, [USER]).say(cut, finish_reason="length").tell(words.user("And?")).say("Fine.")
    report = audit(builtin, played.episode())
    assert kinds(report) == [("retokenised", 0), ("stop_token", 0)]


def test_a_turn_that_never_stopped_is_closed_and_the_close_is_trained(builtin: ChatFormat, words: Any) -> None:
    cut = builtin.encode("Hello there")
    played = words.play(builtin, [USER]).say(cut).tell(words.user("And?")).say(cut)
    report = audit(builtin, played.episode())
    assert kinds(report) == [("stop_token", 0), ("stop_token", 1)]
    first = report.drifts[0]
    assert (first.position, first.count, first.text_T.tolist()) == (len(played.turns[0].context) + len(cut), 1, [2])
    assert report.wrong == 0  # what was sampled is trained as it was


@pytest.mark.parametrize("stop", ["<|endoftext|>", "<|return|>"])
def test_another_stop_token_than_the_template_writes(tiny: Callable[..., ChatFormat], words: Any, stop: str) -> None:
    chat = tiny(chatml(), ["<|return|>"], eos="<|return|>")
    turn = [*chat.encode("Yes.").tolist(), *chat.tokenize(stop).tolist()]
    if stop == "<|endoftext|>":
        chat = tiny(chatml())
    drift = only(audit(chat, words.play(chat, [USER]).say(turn).episode()))
    assert (drift.kind, drift.turn, drift.exact_T.tolist(), drift.text_T.tolist()[:1]) == (
        "stop_token",
        0,
        turn[-1:],
        [2],
    )


def test_the_last_turn_closes_otherwise_than_earlier_ones(tiny: Callable[..., ChatFormat], words: Any) -> None:
    template = (
        "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}"
        "{{ '<|return|>' if loop.last and m.role == 'assistant' and not add_generation_prompt else '<|end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}<|start|>assistant<|message|>{% endif %}"
    )
    chat = tiny(template, ["<|start|>", "<|message|>", "<|return|>", "<|end|>"], eos="<|return|>")
    stop = int(chat.tokenize("<|return|>")[0])
    played = words.play(chat, [USER]).say([*chat.encode("Yes."), stop]).tell(words.user("And?"))
    report = audit(chat, played.say([*chat.encode("No."), stop]).episode())
    drift = only(report)
    assert (drift.kind, drift.turn, chat.decode(drift.exact_T), chat.decode(drift.text_T)) == (
        "stop_token",
        0,
        "<|return|>",
        "<|end|>",
    )
    assert (report.altered, report.wrong) == (1, 1 + len(played.turns[1].completion.ids_T))


def test_reasoning_that_a_template_strips(tiny: Callable[..., ChatFormat], words: Any) -> None:
    chat = tiny(chatml("{{ m.content if loop.last else m.content.split('</think>\n\n')[-1] }}"))
    thought = "<think>\nIt is late.\n</think>\n\n"
    played = words.play(chat, [USER]).say(thought + "I go.").tell(words.user("And?")).say(thought + "I rest.")
    report = audit(chat, played.episode())
    drift = only(report)
    assert (drift.kind, drift.turn, chat.decode(drift.exact_T)) == ("reasoning_strip", 0, thought)
    assert (drift.count, drift.text_T.tolist()) == (len(chat.encode_turn(thought)) - 1, [])
    assert (report.altered, report.wrong) == (drift.count, report.sampled)


def test_an_empty_block_is_the_template_s(tiny: Callable[..., ChatFormat], words: Any) -> None:
    body = "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}"
    chat = tiny(chatml(body))
    played = words.play(chat, [USER]).say("I go.").tell(words.user("And?")).say("I rest.")
    report = audit(chat, played.episode())
    drift = only(report)
    assert (drift.kind, drift.turn, drift.position) == ("template", 1, len(played.turns[1].context))
    assert (chat.decode(drift.exact_T), chat.decode(drift.text_T)) == ("", "<think>\n\n</think>\n\n")
    assert (report.altered, report.wrong) == (0, len(played.turns[1].completion.ids_T))


def test_arguments_that_are_written_again(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [USER], [words.tool]).say(CALL.replace(": ", ":"))
    report = audit(builtin, played.tell(words.result("Rain.")).say("Fine.").episode())
    drift = only(report)
    assert (drift.kind, drift.turn, drift.detail) == ("arguments", 0, "in call 1")
    assert builtin.decode(drift.exact_T) in CALL.replace(": ", ":")


def test_a_false_that_becomes_python_s(tiny: Callable[..., ChatFormat], words: Any) -> None:
    written = "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
    items = '{% for k, v in c.function.arguments.items() %}"{{ k }}": {{ v }}{% endfor %}'
    chat = tiny(
        chatml().replace(written, '{"name": "{{ c.function.name }}", "arguments": {{ "{" }}' + items + "{{ '}}' }}")
    )
    said = CALL.replace('"Paris"', "false")
    drift = only(
        audit(chat, words.play(chat, [USER], [words.tool]).say(said).tell(words.result("No.")).say("A.").episode())
    )
    assert (drift.kind, chat.decode(drift.text_T).strip()) == ("arguments", "False")


def test_a_call_that_the_template_leaves_out_goes_as_text(tiny: Callable[..., ChatFormat], words: Any) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    chat = tiny(template + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    assert kinds(audit(chat, words.play(chat, [USER]).say(CALL).tell(words.user("Rain.")).say("Fine.").episode())) == []


def test_ids_of_calls_that_a_harness_gives_anew(tiny: Callable[..., ChatFormat], words: Any) -> None:
    chat = tiny(chatml().replace("c.function.arguments}", "c.function.arguments, 'id': c.id}"))
    said = CALL.replace("}}\n", '}, "id": "functions.get:0"}\n')
    played = words.play(chat, [USER], [words.tool]).say(said)
    drift = only(audit(chat, played.tell(words.result("Rain.", "call_8f3a")).say("Fine.").episode()))
    assert (drift.kind, drift.turn) == ("call_id", 0)
    assert "get:0" in chat.decode(drift.exact_T)
    kept = words.play(chat, [USER], [words.tool]).say(said).tell(words.result("Rain.", "functions.get:0")).say("Fine.")
    assert kinds(audit(chat, kept.episode())) == []


def test_an_id_that_two_calls_have(tiny: Callable[..., ChatFormat], words: Any) -> None:
    chat = tiny(chatml().replace("c.function.arguments}", "c.function.arguments, 'id': c.id}"))
    said = CALL.replace("}}\n", '}, "id": "get:0"}\n')
    played = words.play(chat, [USER], [words.tool]).say(said).tell(words.result("Rain.", "get:0"))
    report = audit(chat, played.say(said).tell(words.result("Sun.", "get:0")).say("Fine.").episode())
    assert kinds(report) == [("call_id", 1)]
    assert report.wrong == 0


def test_blanks_that_a_template_trims(tiny: Callable[..., ChatFormat], words: Any) -> None:
    chat = tiny(chatml("{{ m.content | trim }}"))
    played = words.play(chat, [USER]).say("\nI go.\n").tell(words.user("And?\n")).say("Fine.")
    report = audit(chat, played.episode())
    assert kinds(report) == [("whitespace", 0), ("whitespace", 0)]
    assert [chat.decode(drift.exact_T) for drift in report.drifts] == ["\n", "\n"]


def test_text_that_spells_a_control_token(builtin: ChatFormat, words: Any) -> None:
    spelled = "<|im_end|> and <tool_call>"
    played = words.play(builtin, [USER]).say("I read.").tell(words.user(spelled)).say("Fine.")
    report = audit(builtin, played.episode())
    assert kinds(report) == [("control_token", 1), ("control_token", 1)]
    assert set(builtin.control_ids) & set(np.concatenate([drift.text_T for drift in report.drifts]).tolist()) == {2, 5}
    own = builtin.encode(spelled).tolist()
    assert kinds(audit(builtin, words.play(builtin, [USER]).say([*own, 2]).episode())) == [("control_token", 0)] * 2


def test_a_second_bos(tiny: Callable[..., ChatFormat], words: Any) -> None:
    chat = tiny("{{ bos_token }}" + chatml(), ["<|bos|>"], bos="<|bos|>")
    episode = words.play(chat, [USER]).say("Fine.").episode()
    assert kinds(audit(chat, episode)) == []
    report = audit(chat, episode, special_tokens=True)
    drift = only(report)
    assert (drift.kind, drift.position, drift.count) == ("bos", 1, 1)
    assert report.wrong == report.sampled


def test_what_a_stream_lost_and_log_probabilities_of_another_number(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [USER], [words.tool]).say("Wait.").tell(words.user("And?")).say(CALL)
    turn = played.turns[1].completion.ids_T
    report = audit(builtin, played.episode(), streamed={1: turn[1:]}, logprobs={0: 2, 1: len(turn)})
    assert kinds(report) == [("logprob_misalignment", 0), ("stream_loss", 1)]
    lost = report.drifts[1]
    assert (lost.position, lost.exact_T.tolist(), lost.text_T.tolist()) == (len(played.turns[1].context), [5], [])
    with pytest.raises(InvalidIds):
        audit(builtin, played.episode(), streamed={1: [4096]})


def test_a_turn_that_repeats_the_end_of_its_prompt(builtin: ChatFormat, words: Any) -> None:
    header = words.play(builtin, [USER]).context.ids[-3:].tolist()
    played = words.play(builtin, [USER]).say([*header, *builtin.encode_turn("Fine.")])
    drift = only(audit(builtin, played.episode()))
    assert (drift.kind, drift.exact_T.tolist()) == ("template", header)


def test_a_conversation_that_the_template_refuses(tiny: Callable[..., ChatFormat], words: Any) -> None:
    refuse = "{% if messages | selectattr('role', 'equalto', 'tool') | list and not add_generation_prompt %}"
    chat = tiny(refuse + "{{ raise_exception('no tools') }}{% endif %}" + chatml())
    played = words.play(chat, [USER], [words.tool]).say(CALL)
    report = audit(chat, played.tell(words.result("Rain.")).say("Fine.").episode())
    drift = only(report)
    assert drift.kind == "template"
    assert "no tools" in drift.detail
    assert report.sampled == report.wrong == report.altered == drift.count


# ---- rewritten pasts


def test_a_swapped_system_prompt(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [SYSTEM, USER]).say("I go.").tell(words.user("And?")).say("I rest.")
    past = [
        Message("user", "Go."),
        Message("assistant", "I go."),
        Message("user", "And?"),
        Message("assistant", "I rest."),
    ]
    played.rewrite("system_swap", [Message("system", "Be kind."), *past, words.user("Now?")]).say("Fine.")
    report = audit(builtin, played.episode())
    drift = only(report)
    assert (drift.kind, drift.turn, builtin.decode(drift.exact_T), builtin.decode(drift.text_T)) == (
        "system_swap",
        0,
        " brief",
        " kind",
    )
    assert report.wrong == sum(len(turn.completion.ids_T) for turn in played.turns[:2])


def test_swapped_tools(builtin: ChatFormat, words: Any) -> None:
    other = {"type": "function", "function": {"name": "put", "parameters": {}}}
    played = words.play(builtin, [SYSTEM, USER], [words.tool]).say("I go.")
    past = [SYSTEM, USER, {"role": "assistant", "content": "I go."}, {"role": "user", "content": "And?"}]
    report = audit(builtin, played.rewrite("tools_change", past, [other]).say("Fine.").episode())
    assert kinds(report) == [("tools_swap", 0)]
    assert kinds(audit(builtin, words.play(builtin, [USER], [words.tool]).say("A.").episode(), tools=[other])) == [
        ("tools_swap", 0)
    ]


def test_a_compacted_past(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [SYSTEM, USER])
    for place in "north", "south", "east":
        played.say(f"I go {place}.").tell(words.user(f"You see the {place} gate, and nothing else."))
    played.say("I stop.").rewrite("compaction", [SYSTEM, words.user("You went to three gates.")]).say("I go west.")
    report = audit(builtin, played.episode())
    assert {drift.kind for drift in report.drifts} == {"history_edit"}
    assert report.wrong == report.sampled - len(played.turns[-1].completion.ids_T)


def test_a_past_that_was_rendered_again_tells_what_it_lost(tiny: Callable[..., ChatFormat], words: Any) -> None:
    chat = tiny(chatml("{{ m.content if loop.last else m.content.split('</think>\n\n')[-1] }}"))
    said, asked = "<think>\nIt is late.\n</think>\n\nI go.", words.user("And?")
    played = words.play(chat, [USER]).say(said)
    past = [Message.of(USER), Message("assistant", said), asked]
    played.rewrite("rerender", past).say(said)
    report = audit(chat, played.rewrite("rerender", [*past, Message("assistant", said), asked]).say("Fine.").episode())
    assert kinds(report) == [("reasoning_strip", 0), ("reasoning_strip", 1)]


def test_fresh_prompts_are_conversations_of_their_own(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [SYSTEM, USER]).say("I go.")
    report = audit(builtin, played.rewrite("fresh_prompt", [USER], source=None).say("I rest.").episode())
    assert kinds(report) == []
    assert report.wrong == 0


def test_attempts_that_were_not_used_are_not_counted(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [USER]).say([*letters(builtin, "Hello"), 2])
    first = replace(played.turns[0], used=False)
    second = words.play(builtin, [USER]).say("Fine.").turns[0]
    second = replace(second, attempt=1, edge=replace(second.edge, kind="retry", source=0))
    report = audit(builtin, replace(played.episode(), turns=(first, second)))
    assert (report.turns, kinds(report)) == (1, [])


def test_a_branch_from_an_earlier_turn_counts_its_own_turns(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [USER]).say([*letters(builtin, "Hello"), 2])
    after = played.context.sampled(played.turns[0].completion.ids_T)
    played.tell(words.user("And?")).say("Fine.")
    context = builtin.bridge(after, [words.user("Or?")])
    other = replace(
        played.turns[1],
        index=2,
        context=context,
        sent_digest=context.digest,
        messages=(words.user("Or?"),),
        edge=replace(played.turns[1].edge, target=2),
    )
    report = audit(builtin, replace(played.episode(), turns=(*played.turns, other)))
    assert report.turns == 3
    assert {kind for kind, _ in kinds(report)} == {"retokenised"}
    assert {turn for _, turn in kinds(report)} == {0}


# ---- what a harness kept


HISTORY: list[tuple[str, Callable[[list[Message]], Sequence[Message]], str]] = [
    (
        "a repaired call",
        lambda m: [*m[:2], replace(m[2], tool_calls=(replace(m[2].tool_calls[0], name="put"),)), *m[3:]],
        "history_edit",
    ),
    ("another answer", lambda m: [*m[:4], Message("assistant", "No.")], "history_edit"),
    ("another observation", lambda m: [*m[:3], replace(m[3], content="Sun."), m[4]], "history_edit"),
    ("trimmed text", lambda m: [*m[:4], Message("assistant", "Yes.")], "whitespace"),
    ("another system prompt", lambda m: [Message("system", "Be kind."), *m[1:]], "system_swap"),
    ("no system prompt", lambda m: m[1:], "system_swap"),
]


@pytest.mark.parametrize(("edit", "kind"), [case[1:] for case in HISTORY], ids=[case[0] for case in HISTORY])
def test_a_history_that_a_harness_edited(builtin: ChatFormat, words: Any, edit: Any, kind: str) -> None:
    played = words.play(builtin, [SYSTEM, USER], [words.tool]).say(CALL).tell(words.result("Rain.")).say("Yes. ")
    kept = [
        *map(Message.of, (SYSTEM, USER)),
        builtin.parse(builtin.encode_turn(CALL)).message(),
        words.result("Rain."),
        Message("assistant", "Yes. "),
    ]
    assert kinds(audit(builtin, played.episode(), history=kept)) == []
    assert {found for found, _ in kinds(audit(builtin, played.episode(), history=edit(kept)))} == {kind}


# ---- records


def test_a_trace_without_messages_is_held_against_its_own_text(builtin: ChatFormat, words: Any) -> None:
    played = (
        words.play(builtin, [USER]).say([*letters(builtin, "Hello"), 2]).tell(words.user("<|im_end|>")).say("Fine.")
    )
    turns = tuple(replace(turn, messages=()) for turn in played.turns)
    report = audit(builtin, replace(played.episode(), turns=turns))
    assert {kind for kind, _ in kinds(report)} == {"retokenised", "control_token"}


def test_turns_whose_ids_were_guessed_are_not_counted(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [USER]).say([*letters(builtin, "Hello"), 2], ids_exact=False)
    report = audit(builtin, played.tell(words.user("And?")).say("Fine.").episode())
    assert report.turns == 1
    assert report.sampled == len(played.turns[1].completion.ids_T)


def test_subagents_are_audited_under_their_own_names(builtin: ChatFormat, words: Any) -> None:
    child = words.play(builtin, [USER]).say([*letters(builtin, "Hello"), 2]).episode()
    child = replace(child, head=replace(child.head, id="child", parent="play"))
    report = audit(builtin, words.play(builtin, [USER]).say("Fine.").episode(children=(child,)))
    assert report.turns == 2
    assert {drift.episode for drift in report.drifts} == {"child"}


def test_ids_of_another_format_are_refused(builtin: ChatFormat, words: Any, tiny: Callable[..., ChatFormat]) -> None:
    with pytest.raises(FingerprintMismatch):
        audit(tiny(chatml()), words.play(builtin, [USER]).say("Fine.").episode())


def test_reports_add_up(builtin: ChatFormat, words: Any, tiny: Callable[..., ChatFormat]) -> None:
    one = audit(builtin, words.play(builtin, [USER]).say([*letters(builtin, "Hello"), 2]).episode())
    both = one + one
    assert (both.turns, both.sampled, both.wrong, both.altered) == (2, 2 * one.sampled, 2 * one.wrong, 2 * one.altered)
    assert both.by_kind() == {kind: 2 * count for kind, count in one.by_kind().items()}
    assert both.rate == one.rate
    written = both.to_dict()
    assert written["by_kind"]["retokenised"]["drifts"] == len(both.drifts) == len(both.of_kind("retokenised"))
    other = audit(tiny(chatml()), [USER, {"role": "assistant", "content": "Fine."}])
    with pytest.raises(ConfigError):
        one + other


# ---- templates of models


def test_qwen2_5_writes_compact_arguments_with_spaces(qwen2_5: ChatFormat, words: Any) -> None:
    compact = '<tool_call>\n{"name":"get","arguments":{"city":"Paris"}}\n</tool_call>'
    played = words.play(qwen2_5, [USER], [words.tool]).say(compact).tell(words.result("Rain.")).say("It rains.")
    drift = only(audit(qwen2_5, played.episode()))
    assert (drift.kind, drift.turn, drift.detail) == ("arguments", 0, "in call 1")
    body = '{"name": "get", "arguments": {"city": "Paris"}}'
    assert len(qwen2_5.encode(body)) - len(qwen2_5.encode(compact[12:-13])) == 4
    assert kinds(audit(qwen2_5, words.play(qwen2_5, [USER], [words.tool]).say(CALL).episode())) == []


def test_qwen3_takes_back_reasoning_and_adds_an_empty_block(qwen3: ChatFormat, words: Any) -> None:
    thought = "<think>\nIt is late.\n</think>\n\n"
    played = words.play(qwen3, [USER], [words.tool]).say(thought + CALL).tell(words.result("Rain."))
    report = audit(qwen3, played.say(thought + "It rains.").tell(words.user("And?")).say("I rest.").episode())
    assert kinds(report) == [("reasoning_strip", 0), ("reasoning_strip", 1), ("template", 2)]
    assert [qwen3.decode(drift.exact_T) for drift in report.drifts] == [thought, thought, ""]
    assert report.wrong == report.sampled


def test_deepseek_keeps_a_plain_conversation(deepseek_v3: ChatFormat, words: Any) -> None:
    played = words.play(deepseek_v3, [SYSTEM, USER]).say("I go.").tell(words.user("And?")).say("I rest.")
    assert kinds(audit(deepseek_v3, played.episode())) == []


def test_a_second_call_that_the_template_leaves_out(tiny: Callable[..., ChatFormat], words: Any) -> None:
    chat = tiny(chatml().replace("in m.tool_calls or []", "in (m.tool_calls or [])[:1]"))
    played = words.play(chat, [USER], [words.tool]).say(CALL + CALL.replace("Paris", "Rome"))
    drift = only(audit(chat, played.tell(words.result("Rain."), words.result("Sun.")).say("Fine.").episode()))
    assert (drift.kind, drift.turn, drift.detail) == ("template", 0, "in call 2")
    assert chat.decode(drift.exact_T).strip() == CALL.replace("Paris", "Rome")


def test_an_id_that_a_result_answers_otherwise(tiny: Callable[..., ChatFormat], words: Any) -> None:
    chat = tiny(chatml("{% if m.tool_call_id %}{{ m.tool_call_id }}: {% endif %}{{ m.content }}"))
    sent = words.play(chat, [USER], [words.tool]).say(CALL).tell(words.result("Rain.", "functions.get:0")).say("Fine.")
    kept = replace(sent.turns[1], messages=(words.result("Rain.", "call_8f3a"),))
    report = audit(chat, replace(sent.episode(), turns=(sent.turns[0], kept)))
    assert {(found, turn) for found, turn in kinds(report)} == {("call_id", 1)}


def test_each_of_several_changes_has_its_own_name(builtin: ChatFormat, words: Any) -> None:
    played = words.play(builtin, [SYSTEM, USER, words.user("It is late.")], [words.tool]).say("I go.")
    history = [
        Message("system", "Be kind."),
        Message("user", "Go."),
        words.user("It is early."),
        Message("assistant", "I go."),
    ]
    other = {"type": "function", "function": {"name": "put", "parameters": {}}}
    assert kinds(audit(builtin, played.episode(), history=history)) == [("system_swap", 0), ("history_edit", 0)]
    report = audit(builtin, played.episode(), history=history, tools=[other])
    assert kinds(report) == [("system_swap", 0), ("tools_swap", 0), ("history_edit", 0)]
