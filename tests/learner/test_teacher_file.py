"""Teacher contexts load back equal, and never onto other ids."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rollouts import CHAT, KINDS, play

from agentgym_tok import ChatFormat
from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing, FingerprintMismatch
from agentgym_tok.learner.teacher import TeacherConfig, TeacherContext, TeacherRefusal, teacher_contexts
from agentgym_tok.learner.teacher_file import load_teachers, save_teachers
from agentgym_tok.tokens import Root
from agentgym_tok.trace import Row, rows, sent_digest

SKILLS = "What has helped:\n- Look first.\n- Then walk, and never look back at what was seen."
ROOT = Root(CHAT.fingerprint, CHAT.vocab_size)


def same(one: TeacherContext | TeacherRefusal, other: TeacherContext | TeacherRefusal) -> bool:
    if isinstance(one, TeacherRefusal) or isinstance(other, TeacherRefusal):
        return one == other
    parts = ("rollout_id", "place", "skill_tokens", "cut_tokens")
    return (
        all(getattr(one, part) == getattr(other, part) for part in parts)
        and one.ids_S.tobytes() == other.ids_S.tobytes()
        and np.array_equal(one.mask_S, other.mask_S)
    )


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, list[Row], list[TeacherContext | TeacherRefusal]]:
    found, contexts = [], []
    for kind in KINDS:
        episode = play(tmp_path / kind, kind)
        made = rows(episode)
        # Some rows are too long for the skills, or for all of them.
        config = TeacherConfig(max_tokens=max(len(row.ids_T) for row in made) + 30 * (kind != "step"))
        found += made
        contexts += teacher_contexts(episode, made, SKILLS, CHAT, config)
    path = tmp_path / "teacher.json"
    save_teachers(path, found, contexts, CHAT)
    return path, found, contexts


def test_they_load_back_equal_in_any_order(
    written: tuple[Path, list[Row], list[TeacherContext | TeacherRefusal]],
) -> None:
    path, found, contexts = written
    kinds = {type(one) for one in contexts} | {"cut" for one in contexts if getattr(one, "cut_tokens", 0)}
    assert kinds == {TeacherContext, TeacherRefusal, "cut"}
    assert all(map(same, load_teachers(path, found, CHAT), contexts))
    assert all(map(same, load_teachers(path, found[::-2], CHAT), contexts[::-2]))


def test_each_text_of_skills_stands_there_once_and_both_digests_are_those_of_the_trace(
    written: tuple[Path, list[Row], list[TeacherContext | TeacherRefusal]],
) -> None:
    path, found, contexts = written
    content = json.loads(path.read_text(encoding="utf-8"))
    assert len(content["skills"]) < sum(isinstance(one, TeacherContext) for one in contexts)
    for row, context, pair in zip(found, contexts, content["pairs"], strict=True):
        assert pair["student"] == sent_digest(ROOT, row.ids_T)
        if isinstance(context, TeacherContext):
            assert pair["teacher"] == sent_digest(ROOT, context.ids_S)


def test_rows_of_other_ids_are_refused(
    written: tuple[Path, list[Row], list[TeacherContext | TeacherRefusal]],
) -> None:
    path, found, _ = written
    ids_T = found[0].ids_T.copy()
    ids_T[-1] += 1
    with pytest.raises(DataCorrupt, match="no teacher was written for these ids"):
        load_teachers(path, [replace(found[0], ids_T=ids_T)], CHAT)
    with pytest.raises(DataCorrupt, match="rollout somebody"):
        load_teachers(path, [replace(found[0], rollout_id="somebody")], CHAT)


@pytest.mark.parametrize("part", ["ids", "place", "missing"])
def test_a_file_that_makes_another_sequence_is_refused(
    written: tuple[Path, list[Row], list[TeacherContext | TeacherRefusal]], part: str
) -> None:
    path, found, contexts = written
    content = json.loads(path.read_text(encoding="utf-8"))
    place = next(place for place, one in enumerate(contexts) if isinstance(one, TeacherContext))
    pair = content["pairs"][place]
    if part == "ids":
        content["skills"][pair["skills"]][0] += 1
    elif part == "place":
        pair["place"] += 1
    else:
        content["skills"] = {}
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataCorrupt, match=r"other ids|missing"):
        load_teachers(path, found[place : place + 1], CHAT)


def test_the_file_of_another_format_is_refused(
    written: tuple[Path, list[Row], list[TeacherContext | TeacherRefusal]], qwen3: ChatFormat
) -> None:
    path, found, _ = written
    with pytest.raises(FingerprintMismatch):
        load_teachers(path, found, qwen3)


def test_no_file_and_no_such_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataMissing):
        load_teachers(tmp_path / "nothing.json", [], CHAT)
    (tmp_path / "other.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataCorrupt):
        load_teachers(tmp_path / "other.json", [], CHAT)
    with pytest.raises(ConfigError, match="one context"):
        save_teachers(tmp_path / "t.json", [], [TeacherRefusal("r", "merged")], CHAT)
