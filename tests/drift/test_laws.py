"""No false alarm, no drift overlooked, and work that grows with the length alone."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Message
from agentgym_tok.drift import DriftReport, align, audit
from agentgym_tok.drift.pipeline import TextPipeline
from agentgym_tok.trace import Episode

WORD = st.text("abcdefghijklmnopqrstuvwxyzäß語", min_size=1, max_size=8)
TEXT = st.lists(WORD, min_size=1, max_size=12).map(" ".join)
SYSTEM = Message("system", "Be brief.")


@st.composite
def turn(draw: st.DrawFn) -> tuple[str, bool]:
    """Return what a policy says as the builtin template writes it, and whether it is a call."""
    reasoning = f"<think>\n{draw(TEXT)}\n</think>\n\n" if draw(st.booleans()) else ""
    if draw(st.booleans()):
        body = json.dumps({"name": "get", "arguments": {draw(WORD): draw(TEXT)}}, ensure_ascii=False)
        said = draw(st.one_of(st.just(""), TEXT.map(lambda text: text + "\n")))
        return f"{reasoning}{said}<tool_call>\n{body}\n</tool_call>", True
    return reasoning + draw(TEXT), False


SCRIPT = st.lists(st.tuples(turn(), TEXT), min_size=1, max_size=5)


def played(chat: ChatFormat, words: Any, script: list[tuple[tuple[str, bool], str]], first: str) -> Any:
    play = words.play(chat, [SYSTEM, words.user(first)], [words.tool])
    for place, ((said, calls), answer) in enumerate(script):
        play.say(said)
        if place + 1 < len(script):
            play.tell(words.result(answer) if calls else words.user(answer))
    return play


@given(script=SCRIPT, first=TEXT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_greedy_conversation_on_a_template_that_keeps_the_past_has_no_drift(
    builtin: ChatFormat, words: Any, script: list[tuple[tuple[str, bool], str]], first: str
) -> None:
    report = audit(builtin, played(builtin, words, script, first).episode())
    assert [drift.to_dict() for drift in report.drifts] == []
    assert (report.wrong, report.altered) == (0, 0)


@given(script=SCRIPT, first=TEXT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_its_messages_have_none_either(
    builtin: ChatFormat, words: Any, script: list[tuple[tuple[str, bool], str]], first: str
) -> None:
    play = played(builtin, words, script, first)
    messages = [
        message for each in play.turns for message in (*each.messages, builtin.parse(each.completion.ids_T).message())
    ]
    report = audit(builtin, messages, tools=[words.tool])
    assert [drift.to_dict() for drift in report.drifts] == []
    assert report.sampled == sum(len(each.completion.ids_T) for each in play.turns)


@given(script=SCRIPT, first=TEXT, data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_token_that_was_drawn_in_pieces_is_found_where_it_stands(
    builtin: ChatFormat, words: Any, script: list[tuple[tuple[str, bool], str]], first: str, data: st.DataObject
) -> None:
    whole = played(builtin, words, script, first)
    number = data.draw(st.integers(0, len(whole.turns) - 1))
    ids = whole.turns[number].completion.ids_T.tolist()
    long = [place for place, index in enumerate(ids) if len(_letters(builtin, index)) > 1]
    if not long:
        return
    place = data.draw(st.sampled_from(long))
    pieces = _letters(builtin, ids[place])
    play = words.play(builtin, [SYSTEM, words.user(first)], [words.tool])
    for each, ((said, calls), answer) in enumerate(script):
        play.say([*ids[:place], *pieces, *ids[place + 1 :]] if each == number else said)
        if each + 1 < len(script):
            play.tell(words.result(answer) if calls else words.user(answer))
    report = audit(builtin, play.episode())
    start = len(play.turns[number].context) + place
    assert [(drift.kind, drift.turn, drift.position) for drift in report.drifts] == [("retokenised", number, start)]
    assert report.drifts[0].exact_T.tolist() == pieces
    assert report.drifts[0].text_T.tolist() == [ids[place]]
    later = sum(len(each.completion.ids_T) for each in play.turns[number + 1 :])
    assert report.altered == len(pieces)
    assert report.wrong == len(ids) - 1 + len(pieces) - place + later


def _letters(chat: ChatFormat, index: int) -> list[int]:
    """Return a token's text letter by letter; nothing where it is a control token or no whole text."""
    text = chat.token_text(index)
    if index in chat.control_ids or "\ufffd" in text:
        return []
    return [piece for letter in text for piece in chat.encode(letter).tolist()]


@given(script=SCRIPT, first=TEXT, data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_control_token_in_a_world_s_text_is_found_where_it_stands(
    builtin: ChatFormat, words: Any, script: list[tuple[tuple[str, bool], str]], first: str, data: st.DataObject
) -> None:
    index = data.draw(st.sampled_from(sorted(builtin.control_ids)))
    number = data.draw(st.integers(0, len(script) - 1))
    spelled = builtin.token_text(index)
    if number == 0:
        first = f"{first} {spelled} x"
    else:
        script[number - 1] = (script[number - 1][0], f"{script[number - 1][1]} {spelled} x")
    play = played(builtin, words, script, first)
    report = audit(builtin, play.episode())
    assert [(drift.kind, drift.turn) for drift in report.drifts] == [("control_token", number)]
    drift = report.drifts[0]
    assert index in drift.text_T.tolist()
    assert index not in drift.exact_T.tolist()
    assert spelled in builtin.decode(drift.exact_T)
    assert report.wrong == sum(len(each.completion.ids_T) for each in play.turns[number:])
    assert report.altered == 0


# ---- what it costs


STRIPS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content if loop.last or m.role != 'assistant' else m.content.split('</think>\n\n')[-1] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the ids that alignment looks at, and the characters that are encoded."""
    seen = {"ids": 0, "characters": 0}
    grams, encode = align._grams, TextPipeline.encode

    def counted_grams(ids_T: Any, size: int) -> Any:
        seen["ids"] += len(ids_T)
        return grams(ids_T, size)

    def counted_encode(self: TextPipeline, text: str, *, special_tokens: bool = False) -> Any:
        seen["characters"] += len(text)
        return encode(self, text, special_tokens=special_tokens)

    monkeypatch.setattr(align, "_grams", counted_grams)
    monkeypatch.setattr(TextPipeline, "encode", counted_encode)
    return seen


def long_episode(chat: ChatFormat, words: Any, turns: int) -> Episode:
    """Play turns of some 540 ids with reasoning and with words in pieces."""
    rng = np.random.default_rng(0)
    known = ["lamp", "desk", "drawer", "north", "kettle", "you", "see", "nothing", "about", "it", "while", "walking"]

    def text(count: int) -> str:
        return " ".join(rng.choice(known, count))

    play = words.play(chat, [words.user("Go.")])
    for place in range(turns):
        said = f"<think>\n{text(60)}\n</think>\n\n{text(20)}"
        spoilt = [index for letter in "kettle" for index in chat.encode(letter)]
        play.say([*chat.encode_turn(said)[:-1], *spoilt, chat.stop_ids[0]])
        if place + 1 < turns:
            play.tell(words.user(text(440)))
    return play.episode()


@pytest.mark.parametrize("by", ["ids", "messages"])
def test_an_audit_of_70k_tokens_costs_linear_work(
    tiny: Callable[..., ChatFormat], words: Any, work: dict[str, int], by: str
) -> None:
    chat = tiny(STRIPS)
    costs: list[dict[str, int]] = []
    for turns in (32, 128):
        episode = long_episode(chat, words, turns)
        last = episode.turns[-1]
        length = len(last.context) + len(last.completion.ids_T)
        size = len(chat.decode(last.context.ids)) + len(chat.decode(last.completion.ids_T))
        messages = [
            message
            for each in episode.turns
            for message in (*each.messages, Message("assistant", chat.decode(each.completion.ids_T[:-1])))
        ]
        work.update(ids=0, characters=0)
        report: DriftReport = audit(chat, episode) if by == "ids" else audit(chat, messages)
        expected = {"reasoning_strip", "retokenised"} if by == "ids" else {"reasoning_strip"}
        assert set(report.by_kind()) == expected
        assert len(report.of_kind("reasoning_strip")) == turns - 1
        assert work["ids"] <= 40 * length
        assert work["characters"] <= 4 * size
        costs.append(dict(work))
    assert length > 70_000
    assert all(costs[1][name] <= 4.4 * costs[0][name] for name in work)
