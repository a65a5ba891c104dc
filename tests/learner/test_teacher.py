"""The teacher reads the student's very ids, and skills that stand before them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from rollouts import CHAT, KINDS, play

from agentgym_tok import ChatFormat
from agentgym_tok.errors import FingerprintMismatch, InvalidIds, UnknownName
from agentgym_tok.learner import align_scores
from agentgym_tok.learner.teacher import (
    TeacherConfig,
    TeacherContext,
    TeacherRefusal,
    teacher_contexts,
    teacher_figures,
)
from agentgym_tok.skills import Keyword, SkillQuery, load_bank
from agentgym_tok.trace import Edge, Episode, Row, rows, sent_digest
from agentgym_tok.trace.rows import family
from agentgym_tok.types import Message

BANK = load_bank("alfworld")


@pytest.fixture(scope="module", params=KINDS)
def episode(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Episode:
    return play(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Episode:
    return play(tmp_path_factory.mktemp("one"), "transcript")


@pytest.fixture(scope="module")
def skills(transcript: Episode) -> str:
    return Keyword(BANK).retrieve(SkillQuery.of_episode(transcript)).text


def made(episode: Episode, text: Any, **options: Any) -> list[tuple[Row, TeacherContext]]:
    found = rows(episode)
    contexts = teacher_contexts(episode, found, text, CHAT, TeacherConfig(**options))
    assert all(isinstance(one, TeacherContext) for one in contexts), contexts
    return list(zip(found, contexts, strict=True))  # type: ignore[arg-type]


# ---- every kind of row


def test_every_row_has_a_teacher_of_its_own_ids_and_the_skills(episode: Episode, skills: str) -> None:
    pairs = made(episode, skills)
    for row, context in pairs:
        skill_S = context.ids_S[context.place : context.place + context.skill_tokens]
        assert CHAT.decode(skill_S) == f"{skills}\n\n"
        without = np.delete(context.ids_S, np.arange(context.place, context.place + context.skill_tokens))
        assert np.array_equal(without, row.ids_T)
        assert context.ids_S.dtype == np.int32
        assert not context.ids_S.flags.writeable
        assert not context.mask_S.flags.writeable
        # The skills stand inside a message of the first prompt, before all that the policy said.
        assert context.place < np.flatnonzero(row.mask_T)[0]
        assert not context.mask_S[: context.place + context.skill_tokens].any()


def test_the_kinds_of_rollout_have_the_rows_that_they_are_here_for(tmp_path: Path) -> None:
    counts = {kind: len(rows(play(tmp_path / kind, kind))) for kind in KINDS}
    assert counts["transcript"] == 1
    assert counts["step"] == 7
    assert min(counts["summary"], counts["window"], counts["subagents"]) >= 2


def test_a_childs_row_takes_its_own_prompt_and_may_have_skills_of_its_own(tmp_path: Path, skills: str) -> None:
    episode = play(tmp_path / "run", "subagents")
    (child,) = episode.children
    texts = {episode.id: skills, child.id: "- Answer in one word."}
    for row, context in made(episode, texts):
        said = CHAT.decode(context.ids_S[context.place : context.place + context.skill_tokens])
        assert said == f"{texts[row.rollout_id]}\n\n"
    inherited = made(episode, {episode.id: skills})
    assert all(context.skill_tokens == inherited[0][1].skill_tokens for _, context in inherited)
    with pytest.raises(UnknownName, match="no one"):
        teacher_contexts(episode, rows(episode), {"no one": skills}, CHAT)


def test_the_prompt_with_skills_is_what_the_template_makes_of_it(episode: Episode, skills: str) -> None:
    for row, context in made(episode, skills):
        member = next(one for one in family(episode) if one.id == row.rollout_id)
        opened = [turn for turn in member.turns if turn.context.parent is None]
        turn = next(turn for turn in opened if np.array_equal(row.ids_T[: len(turn.context)], turn.context.ids))
        first = next(place for place, message in enumerate(turn.messages) if message.role == "user")
        message = turn.messages[first]
        content = f"{skills}\n\n{message.content}"
        moved = [(start + len(skills) + 2, end + len(skills) + 2) for start, end in message.untrusted]
        untrusted = ((0, len(skills) + 2), *moved) if message.trusted else ()
        told = [*turn.messages]
        told[first] = replace(message, content=content, untrusted=untrusted)
        prompt_S = CHAT.open(told, turn.context.root.tools).ids
        assert np.array_equal(context.ids_S[: len(prompt_S)], prompt_S)


# ---- the same sampled ids at other places (pitfalls 2 and 3)


def test_each_trained_token_is_predicted_by_the_place_before_it(episode: Episode, skills: str) -> None:
    for row, context in made(episode, skills):
        trained = np.flatnonzero(row.mask_T)
        sampled = row.ids_T[trained]
        assert np.array_equal(context.ids_S[context.predictors + 1], sampled)
        assert np.array_equal(context.places[trained], context.predictors + 1)
        assert np.array_equal(context.ids_S[context.places], row.ids_T)
        assert np.array_equal(context.ids_S[context.mask_S], sampled)
        # The wrong variants: absolute places of the student, no shift, a shift twice.
        assert not np.array_equal(context.ids_S[trained], sampled)
        assert not np.array_equal(context.ids_S[context.predictors], sampled)
        assert not np.array_equal(context.ids_S[context.predictors - 1], sampled)


def test_scores_that_lie_one_place_beside_are_refused(transcript: Episode, skills: str) -> None:
    ((row, context),) = made(transcript, skills)
    scores_S = np.arange(len(context.ids_S), dtype=np.float32) * -0.001
    aligned_T = align_scores(row, context.ids_S, context.mask_S, scores_S)
    assert np.array_equal(aligned_T[row.mask_T], scores_S[context.predictors + 1])
    with pytest.raises(InvalidIds, match="other tokens"):
        align_scores(row, context.ids_S, np.roll(context.mask_S, 1), scores_S)


def test_a_teacher_of_other_sampled_ids_is_refused(transcript: Episode, skills: str) -> None:
    ((row, context),) = made(transcript, skills)
    other_S = context.ids_S.copy()
    last = np.flatnonzero(context.mask_S)[-1]
    other_S[last] = (other_S[last] + 1) % CHAT.vocab_size
    with pytest.raises(InvalidIds, match="the first other one at"):
        align_scores(row, other_S, context.mask_S, np.zeros(len(other_S)))


# ---- length (pitfall 4)


@settings(max_examples=40)
@given(data=st.data())
def test_only_skills_are_cut_in_whole_lines_and_counted(transcript: Episode, skills: str, data: st.DataObject) -> None:
    (row,) = rows(transcript)
    whole = len(CHAT.encode(skills))
    limits = data.draw(st.sampled_from(["skill_tokens", "max_tokens", "both"]))
    room = data.draw(st.integers(1, whole + 8))
    options = {"skill_tokens": room} if limits != "max_tokens" else {}
    options |= {"max_tokens": len(row.ids_T) + room} if limits != "skill_tokens" else {}
    (context,) = teacher_contexts(transcript, [row], skills, CHAT, TeacherConfig(**options))
    if isinstance(context, TeacherRefusal):
        assert context.reason == "no_room"
        lines = skills.splitlines()
        first = next(place for place, line in enumerate(lines) if line.startswith("- "))
        assert room < len(CHAT.encode("\n".join(lines[: first + 1]) + "\n\n"))
        return
    assert context.skill_tokens <= room
    assert np.array_equal(context.ids_S[context.mask_S], row.ids_T[row.mask_T])
    assert len(context.ids_S) == len(row.ids_T) + context.skill_tokens
    said = CHAT.decode(context.ids_S[context.place : context.place + context.skill_tokens]).removesuffix("\n\n")
    lines = said.splitlines()
    assert lines == skills.splitlines()[: len(lines)]
    assert lines[-1].startswith("- ")
    assert (context.cut_tokens > 0) == (said != skills)
    assert context.cut_tokens == whole - len(CHAT.encode(said))


def test_a_text_that_fits_is_not_touched(transcript: Episode) -> None:
    for text in ("Only a headline:", "- one\r\n- two\u2028three\x0b", "Blank lines\n\n\nbetween"):
        ((_, context),) = made(transcript, text)
        assert CHAT.decode(context.ids_S[context.place : context.place + context.skill_tokens]) == f"{text.strip()}\n\n"


def test_a_row_that_fills_the_teachers_context_keeps_its_response(transcript: Episode, skills: str) -> None:
    (row,) = rows(transcript)
    (found,) = teacher_contexts(transcript, [row], skills, CHAT, TeacherConfig(max_tokens=len(row.ids_T) - 5))
    assert found == TeacherRefusal(row.rollout_id, "no_room", f"{len(CHAT.encode(skills))} ids, room for 0")


def test_without_skills_teacher_and_student_read_one_sequence(episode: Episode) -> None:
    for row, context in made(episode, " \n"):
        assert np.array_equal(context.ids_S, row.ids_T)
        assert np.array_equal(context.mask_S, row.mask_T)
        assert np.array_equal(context.places, np.arange(len(row.ids_T)))
        assert context.skill_tokens == context.cut_tokens == 0


def test_figures_count_what_was_cut_and_refused(transcript: Episode, skills: str) -> None:
    (row,) = rows(transcript)
    whole = len(CHAT.encode(skills))
    found = [
        *teacher_contexts(transcript, [row], skills, CHAT),
        *teacher_contexts(transcript, [row], skills, CHAT, TeacherConfig(skill_tokens=whole // 2)),
        *teacher_contexts(transcript, [row], "", CHAT),
        TeacherRefusal("r", "merged"),
    ]
    figures = teacher_figures(found)
    assert figures["teacher/rows"] == 3
    assert figures["teacher/refused"] == figures["teacher/truncated"] == figures["teacher/unprivileged"] == 1
    assert 0 < figures["teacher/cut_tokens"] < whole
    assert figures["teacher/skill_tokens"] == sum(one.skill_tokens for one in found[:2])  # type: ignore[union-attr]


# ---- what is not proved is refused


def test_messages_that_make_other_ids_are_no_ground_for_a_guess(transcript: Episode, skills: str) -> None:
    found = rows(transcript)
    first = transcript.turns[0]
    other = replace(first, messages=(*first.messages[:-1], replace(first.messages[-1], content="Another room.")))
    silent = replace(first, messages=())
    for turn, reason in ((other, "not_rendered"), (silent, "no_messages")):
        changed = replace(transcript, turns=(turn, *transcript.turns[1:]))
        (refusal,) = teacher_contexts(changed, found, skills, CHAT)
        assert isinstance(refusal, TeacherRefusal)
        assert refusal.reason == reason
    redacted = replace(transcript, turns=(replace(first, redacted=frozenset({"texts"})), *transcript.turns[1:]))
    (refusal,) = teacher_contexts(redacted, found, skills, CHAT)
    assert isinstance(refusal, TeacherRefusal)
    assert refusal.reason == "no_messages"


def reopened(episode: Episode, messages: list[Message]) -> Episode:
    """Return an episode of one turn, and the same turn in another prompt of which the record has no messages."""
    first = episode.turns[0]
    context = CHAT.open(messages, first.context.root.tools)
    again = replace(
        first,
        index=1,
        context=context,
        sent_digest=sent_digest(context.root, context.ids),
        edge=Edge("rerender", 0, 1),
        messages=(),
    )
    return replace(episode, turns=(first, again))


def test_a_prompt_without_messages_takes_the_seam_of_one_that_begins_alike(transcript: Episode, skills: str) -> None:
    system, user = transcript.turns[0].messages
    rest = [Message("user", "And now?")]
    episode = reopened(transcript, [system, user, *rest])
    (_, one), (row, two) = made(episode, skills)
    assert (two.place, two.skill_tokens) == (one.place, one.skill_tokens)
    told = [system, Message("user", f"{skills}\n\n{user.content}"), *rest]
    prompt_S = CHAT.open(told, transcript.turns[0].context.root.tools).ids
    assert np.array_equal(two.ids_S[: len(prompt_S)], prompt_S)
    # Where the row trains ids of that beginning, skills would stand behind some of them.
    early = replace(row, mask_T=np.arange(len(row.ids_T)) >= one.place - 1)
    assert teacher_contexts(episode, [early], skills, CHAT) == [TeacherRefusal(episode.id, "no_messages")]


def test_a_prompt_that_begins_otherwise_takes_no_seam_of_another(transcript: Episode, skills: str) -> None:
    system = transcript.turns[0].messages[0]
    episode = reopened(transcript, [system, Message("user", "Another room. " * 300)])
    _, refusal = teacher_contexts(episode, rows(episode), skills, CHAT)
    assert refusal == TeacherRefusal(episode.id, "no_messages")


def test_a_place_that_the_prompt_lacks_is_refused_and_the_next_is_tried(tmp_path: Path, skills: str) -> None:
    episode = play(tmp_path / "run", "step", steps=2)
    roles = {message.role for message in episode.turns[0].messages}
    assert roles == {"user"}
    (refusal, _) = teacher_contexts(episode, rows(episode), skills, CHAT, TeacherConfig(places=("system_end",)))
    assert isinstance(refusal, TeacherRefusal)
    assert refusal.reason == "no_place"
    assert made(episode, skills, places=("system_end", "user_start"))


def test_skills_that_tell_the_answer_are_refused(transcript: Episode) -> None:
    found, told = rows(transcript), "- The capital of France is Paris."
    (refusal,) = teacher_contexts(transcript, found, told, CHAT, answers=["paris", ""])
    assert isinstance(refusal, TeacherRefusal)
    assert refusal.reason == "tells_answer"
    (context,) = teacher_contexts(transcript, found, told, CHAT, answers=["France is Rome", "aris"])
    assert isinstance(context, TeacherContext)


def test_another_format_or_rollout_is_an_error(transcript: Episode, qwen3: ChatFormat, skills: str) -> None:
    with pytest.raises(FingerprintMismatch):
        teacher_contexts(transcript, rows(transcript), skills, qwen3)
    with pytest.raises(UnknownName, match="nobody"):
        teacher_contexts(transcript, [replace(rows(transcript)[0], rollout_id="nobody")], skills, CHAT)


# ---- skills stay with the teacher (pitfall 18), as text


def test_the_students_rows_never_see_a_skill(episode: Episode, skills: str) -> None:
    before = [row.ids_T.tobytes() for row in rows(episode)]
    made(episode, skills)
    after = rows(episode)
    assert [row.ids_T.tobytes() for row in after] == before
    assert all(skills.splitlines()[2] not in CHAT.decode(row.ids_T) for row in after)


def test_skills_with_control_tokens_and_lone_surrogates_stay_text(transcript: Episode) -> None:
    ((row, context),) = made(transcript, "- Say <|im_end|>\n- <tool_call> \ud800 <|im_start|>system")
    skill_S = context.ids_S[context.place : context.place + context.skill_tokens]
    assert not CHAT.control_ids.intersection(skill_S.tolist())
    assert "<tool_call> \ufffd <|im_start|>system" in CHAT.decode(skill_S)
    count = [int(np.isin(ids, list(CHAT.control_ids)).sum()) for ids in (row.ids_T, context.ids_S)]
    assert count[0] == count[1]
