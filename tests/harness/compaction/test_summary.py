"""Summaries: turns of the policy like any other, in front of what is kept; those that are of no use are thrown away."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scene import REWRITES, play, policy, sampled, turns_in

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.errors import PolicyError
from agentgym_tok.harness import Budget, SummaryCompaction
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Episode, Turn

NOTES = "I walked."
COMPACTION = SummaryCompaction(at_turns=3, request="Write notes for yourself.")


def notes(chat: ChatFormat) -> Callable[[Request], Completion]:
    return lambda request: sampled(chat.encode_turn(NOTES).tolist(), request)


def summaries(episode: Episode) -> list[Turn]:
    return [turn for turn in episode.turns if turn.facts.get("aside") == "summary"]


def test_the_summary_answers_the_first_prompt_and_what_is_kept_keeps_its_ids(chat: ChatFormat, tmp_path: Path) -> None:
    speaker = policy(chat, COMPACTION.request, notes(chat))
    episode = play(tmp_path, chat, speaker, COMPACTION)
    assert [turn.edge.kind for turn in episode.turns] == [
        *["fresh_prompt", "continuation", "continuation", "continuation", "compaction"],
        *["continuation", "continuation"],
    ]
    first, _, last, summary, after, *_ = episode.turns
    assert (summary.used, summary.edge.source, summary.edge.reason) == (True, 2, "a summary is asked for")
    assert (after.edge.source, after.edge.reason) == (3, "summary")
    # The first prompt is the same node; behind it stand the summary and the last exchange.
    assert [*after.context.lineage()][-1].digest == first.context.digest
    assert after.context.spans[0] == first.context.span
    assert [span.ids_T.tolist() for span in turns_in(after.context)] == [
        summary.completion.ids_T.tolist(),
        last.completion.ids_T.tolist(),
    ]
    text = chat.decode(after.context.ids)
    assert COMPACTION.resume in text
    assert COMPACTION.request not in text
    assert text.count("You are in room 2 now") == text.count("You are in room 3 now") == 1
    assert "You are in room 1 now" not in text
    assert len(after.context) < len(summary.context)


def test_summaries_are_summarised_in_turn(chat: ChatFormat, tmp_path: Path) -> None:
    compaction = SummaryCompaction(at_turns=2, keep=1, request="Write notes for yourself.")
    episode = play(tmp_path, chat, policy(chat, compaction.request, notes(chat)), compaction, max_steps=9)
    rewritten = [turn for turn in episode.turns if turn.edge.kind == "compaction"]
    assert len(rewritten) >= 3
    for turn in rewritten:
        assert chat.decode(turn.context.ids).count(compaction.resume) == 1
        assert len(turns_in(turn.context)) == 2


def silent(chat: ChatFormat, request: Request) -> Completion:
    return sampled(chat.stop_ids[:1], request)


def blank(chat: ChatFormat, request: Request) -> Completion:
    return sampled([*chat.encode(" \n ").tolist(), chat.stop_ids[0]], request)


def only_thinks(chat: ChatFormat, request: Request) -> Completion:
    return sampled(chat.encode_turn("<think>I walked and I do not know").tolist()[:-1], request)


def too_long(chat: ChatFormat, request: Request) -> Completion:
    return sampled(chat.encode_turn("I walked. " * 200).tolist(), request)


def no_room(chat: ChatFormat, request: Request) -> Completion:
    return Completion(as_ids([]), finish_reason="truncated", sampling=request.sampling)


def no_id(chat: ChatFormat, request: Request) -> Completion:
    return Completion(as_ids([chat.vocab_size]), sampling=request.sampling)


def fails(chat: ChatFormat, request: Request) -> Completion:
    raise PolicyError("the engine is down")


USELESS = {
    silent: "it is empty",
    blank: "it is empty",
    only_thinks: "it is empty",
    too_long: r"\d+ tokens for \d+",
    no_room: "there was no room",
    no_id: "outside the vocabulary",
    fails: "the engine is down",
}


@pytest.mark.parametrize("useless", USELESS)
def test_a_summary_of_no_use_is_sampled_again_from_the_identical_context(
    chat: ChatFormat, tmp_path: Path, useless: Any
) -> None:
    asked: list[Request] = []

    def summary(request: Request) -> Completion:
        asked.append(request)
        return useless(chat, request) if len(asked) == 1 else notes(chat)(request)

    episode = play(tmp_path, chat, policy(chat, COMPACTION.request, summary), COMPACTION)
    wasted, second = summaries(episode)[:2]
    check_wasted(wasted, USELESS[useless])
    assert (second.used, second.attempt, second.edge.kind) == (True, 1, "retry")
    assert asked[0].ids_T.tolist() == asked[1].ids_T.tolist()
    assert asked[0].seed != asked[1].seed
    (after,) = [turn for turn in episode.turns if turn.edge.kind in REWRITES]
    assert after.edge.reason == "summary"
    assert np.array_equal(turns_in(after.context)[0].ids_T, second.completion.ids_T)


@pytest.mark.parametrize("useless", USELESS)
def test_where_no_summary_is_of_use_the_window_is_kept_and_the_edge_says_why(
    chat: ChatFormat, tmp_path: Path, useless: Any
) -> None:
    episode = play(tmp_path, chat, policy(chat, COMPACTION.request, lambda request: useless(chat, request)), COMPACTION)
    wasted = summaries(episode)
    assert [(turn.index, turn.attempt) for turn in wasted] == [(3, 0), (3, 1)]
    for turn in wasted:
        check_wasted(turn, USELESS[useless])
    after = episode.turns[5]
    assert (after.edge.kind, after.edge.reason) == ("compaction", "window: no summary was of use")
    assert (after.index, after.edge.source) == (4, 2)
    kept = [episode.turns[0], episode.turns[2]]
    assert [span.ids_T.tolist() for span in turns_in(after.context)] == [
        turn.completion.ids_T.tolist() for turn in kept
    ]
    assert episode.status == "done"


def check_wasted(turn: Turn, why: str) -> None:
    assert not turn.used
    assert re.search(why, str(turn.facts.get("refused")) + str(turn.failure))
    assert (turn.failure is None) or turn.failure.boundary == "policy"


def test_a_summary_that_makes_the_context_longer_is_no_summary(builtin: ChatFormat, tmp_path: Path) -> None:
    """What was said to the last replaced turn is said once more, so that it is no room for a summary."""
    compaction = SummaryCompaction(at_turns=1, keep=0, attempts=1, request="Write notes for yourself.")

    def summary(request: Request) -> Completion:
        turn = builtin.encode_turn("<action>go to room 1000</action>").tolist()
        return sampled([*builtin.encode("I").tolist(), *turn], request)

    episode = play(tmp_path, builtin, policy(builtin, compaction.request, summary), compaction, max_steps=2)
    assert [turn.used for turn in summaries(episode)] == [False]
    assert not [turn for turn in episode.turns if turn.edge.kind in REWRITES]


def test_a_summary_that_calls_a_tool_is_no_summary(builtin: ChatFormat, tmp_path: Path) -> None:
    call = 'Notes.<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    compaction = SummaryCompaction(at_turns=3, attempts=1, request="Write notes for yourself.")
    speaker = policy(builtin, compaction.request, lambda request: sampled(builtin.encode_turn(call).tolist(), request))
    (wasted,) = summaries(play(tmp_path, builtin, speaker, compaction, max_steps=4))
    assert (wasted.used, wasted.facts["refused"]) == (False, "it is a call")


def test_what_cannot_be_rewritten_is_not_tried_again_at_once(builtin: ChatFormat, tmp_path: Path) -> None:
    compaction = SummaryCompaction(at_turns=2, keep=1, attempts=1, request="Write notes for yourself.")
    speaker = policy(builtin, compaction.request, lambda request: silent(builtin, request))
    episode = play(tmp_path, builtin, speaker, compaction, max_steps=4)
    assert [turn.index for turn in summaries(episode)] == [2]


@pytest.mark.parametrize("keep", [2, 3, 7])
def test_no_exchange_that_is_to_be_kept_is_summarised(builtin: ChatFormat, tmp_path: Path, keep: int) -> None:
    compaction = SummaryCompaction(at_turns=1, keep=keep, request="Write notes for yourself.")
    episode = play(tmp_path, builtin, policy(builtin, compaction.request, notes(builtin)), compaction, max_steps=4)
    assert len(summaries(episode)) == (keep == 2)  # three exchanges stand before the last turn


def test_a_limit_that_a_summary_reaches_is_the_end(builtin: ChatFormat, tmp_path: Path) -> None:
    speaker = policy(builtin, COMPACTION.request, notes(builtin))
    episode = play(tmp_path, builtin, speaker, COMPACTION, budget=Budget(turns=4))
    assert len(speaker.asked) == 4
    assert [turn.facts.get("aside") for turn in episode.turns] == [None, None, None, "summary", None]
    assert (episode.status, episode.turns[-1].truncation) == ("done", "budget_turns")
    assert not len(episode.turns[-1].completion.ids_T)


def test_a_limit_ends_the_attempts_at_a_summary(builtin: ChatFormat, tmp_path: Path) -> None:
    compaction = SummaryCompaction(at_turns=3, attempts=50, request="Write notes for yourself.")
    speaker = policy(builtin, compaction.request, lambda request: silent(builtin, request))
    play(tmp_path, builtin, speaker, compaction, budget=Budget(turns=6))
    assert len(speaker.asked) == 6


# ---- templates that have no place for a summary


ROOMS = (
    "{% for m in messages %}{{ '<|im_end|>' if m.role == 'tool' else '<|im_start|>' }}{{ m.role }}\n{{ m.content }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Nothing closes a turn: as in GLM, policies stop on the opener of the next message."""


@pytest.fixture
def opening(tiny: Callable[[str], ChatFormat]) -> ChatFormat:
    return tiny(ROOMS)


def goes_until_opened(chat: ChatFormat, request: Request) -> Completion:
    words = chat.encode(f"<action>go to room {request.seed % 997}</action>").tolist()
    return sampled([*words, opener(chat, "<|im_start|>")], request)


def opener(chat: ChatFormat, text: str) -> int:
    return {chat.token_text(index): index for index in chat.control_ids}[text]


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_summary_that_cannot_be_a_turn_is_quoted_and_nothing_of_it_is_trained_there(
    opening: ChatFormat, tmp_path: Path, keep: int
) -> None:
    def stops_as_for_a_tool(request: Request) -> Completion:
        return sampled([*opening.encode(NOTES).tolist(), opener(opening, "<|im_end|>")], request)

    compaction = SummaryCompaction(at_turns=3, keep=keep, request="Write notes for yourself.")
    speaker = policy(opening, compaction.request, stops_as_for_a_tool, goes_until_opened)
    episode = play(tmp_path, opening, speaker, compaction, max_steps=5)
    (summary,) = summaries(episode)
    after = episode.turns[4]
    assert summary.used
    assert (after.edge.kind, after.edge.reason) == ("compaction", "summary, quoted (other_opener)")
    text = opening.decode(after.context.span.ids_T if keep == 0 else after.context.spans[0].ids_T)
    assert f"\n\n{NOTES}\n{compaction.resume}" in text
    assert after.context.spans[0].origin == "prompt"
    kept = episode.turns[3 - keep : 3]
    assert [span.ids_T.tolist() for span in turns_in(after.context)] == [
        turn.completion.ids_T.tolist() for turn in kept
    ]


def test_a_template_that_takes_no_more_words_keeps_the_window(
    tiny: Callable[[str], ChatFormat], tmp_path: Path
) -> None:
    """The quotation, too, can be refused: then nothing of the summary is used, and it stays trained."""
    long = "{% for m in messages %}{% if 'I walked' in m.content %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
    chat = tiny(long + ROOMS)

    def stops_as_for_a_tool(request: Request) -> Completion:
        return sampled([*chat.encode(NOTES).tolist(), opener(chat, "<|im_end|>")], request)

    speaker = policy(chat, COMPACTION.request, stops_as_for_a_tool, goes_until_opened)
    episode = play(tmp_path, chat, speaker, COMPACTION, max_steps=5)
    after = episode.turns[4]
    assert after.edge.kind == "compaction"
    assert after.edge.reason.startswith("window: there is no place for a summary (")


def test_where_no_summary_can_be_asked_for_the_window_is_kept(
    tiny: Callable[[str], ChatFormat], tmp_path: Path
) -> None:
    refuse = (
        "{% for m in messages %}{% if 'notes for' in m.content %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
    )
    chat = tiny(refuse + ROOMS)
    speaker = policy(chat, COMPACTION.request, notes(chat), goes_until_opened)
    episode = play(tmp_path, chat, speaker, COMPACTION, max_steps=5)
    assert not summaries(episode)
    assert [turn.edge.reason for turn in episode.turns if turn.edge.kind == "compaction"] == [
        "window: no summary can be asked for (template_refuses)"
    ]


def test_a_template_that_bridges_nothing_has_no_conversation_to_rewrite(
    tiny: Callable[[str], ChatFormat], tmp_path: Path
) -> None:
    """Each context is rendered anew, so that no turn stands in the next one: there is nothing to keep the ids of."""
    chat = tiny("{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}assistant:")
    episode = play(tmp_path, chat, policy(chat, COMPACTION.request, notes(chat)), COMPACTION)
    assert [turn.edge.kind for turn in episode.turns] == ["fresh_prompt", *["rerender"] * 5]
