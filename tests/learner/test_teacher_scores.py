"""A teacher scores the sampled ids and nothing else, once, at the temperature at which they were drawn."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="the extra torch is not installed")
sys.path.insert(0, str(Path(__file__).parent))

from rollouts import CHAT, play  # noqa: E402

from agentgym_tok.errors import ConfigError, InvalidIds  # noqa: E402
from agentgym_tok.learner.teacher import TeacherConfig, TeacherContext, teacher_contexts  # noqa: E402
from agentgym_tok.learner.teacher_scores import score_teachers  # noqa: E402
from agentgym_tok.policies import load_policy  # noqa: E402
from agentgym_tok.trace import Episode, rows  # noqa: E402

SKILLS = "What has helped:\n- Look first.\n- Then walk."


@pytest.fixture(scope="module")
def folder(save_qwen2: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen2(tmp_path_factory.mktemp("model"), max_position_embeddings=4096)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def teacher(folder: Path) -> Any:
    return load_policy(f"hf:{folder}", CHAT)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


@pytest.fixture(scope="module", params=["summary", "subagents"])
def episode(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Episode:
    return play(tmp_path_factory.mktemp(request.param), request.param, steps=5, temperature=0.7)


def by_hand(model: Any, ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any], heat: float) -> np.ndarray[Any, Any]:
    """Score trained ids with one plain forward pass: row t - 1 of the logits speaks of token t."""
    with torch.no_grad():
        logits = model(torch.tensor(ids[None].astype(np.int64))).logits[0].float()
    logprobs = torch.log_softmax(logits / heat, -1).numpy()
    trained = np.flatnonzero(mask)
    return np.asarray(logprobs[trained - 1, ids[trained]])


def test_scores_are_those_of_a_plain_forward_pass_over_the_teachers_sequence(
    teacher: Any, model: Any, episode: Episode
) -> None:
    found = rows(episode)
    contexts = teacher_contexts(episode, found, SKILLS, CHAT)
    assert len(found) > 1
    for row, context, scores_T in zip(found, contexts, score_teachers(teacher, found, contexts), strict=True):
        assert isinstance(context, TeacherContext)
        assert scores_T is not None
        exact = by_hand(model, context.ids_S, context.mask_S, 0.7)
        assert np.allclose(scores_T[row.mask_T], exact, atol=1e-4)
        assert not scores_T[~row.mask_T].any()
        # Wrong variants are far away: another temperature, the student's context, the neighbour's score.
        for wrong in (
            by_hand(model, context.ids_S, context.mask_S, 1.0),
            by_hand(model, row.ids_T, row.mask_T, 0.7),
            np.roll(exact, 1),
        ):
            assert np.abs(scores_T[row.mask_T] - wrong).max() > 1e-3


def test_without_skills_the_gap_is_nothing(teacher: Any, model: Any, episode: Episode) -> None:
    found = rows(episode)
    contexts = teacher_contexts(episode, found, "", CHAT)
    for row, scores_T in zip(found, score_teachers(teacher, found, contexts), strict=True):
        assert scores_T is not None
        student = by_hand(model, row.ids_T, row.mask_T, 0.7)
        assert np.allclose(scores_T[row.mask_T] - student, 0, atol=1e-4)


def test_a_row_without_a_teacher_has_no_scores(teacher: Any, episode: Episode) -> None:
    found = rows(episode)
    limit = len(found[1].ids_T) + 1
    contexts = [
        *teacher_contexts(episode, found[:1], SKILLS, CHAT),
        *teacher_contexts(episode, found[1:], SKILLS, CHAT, TeacherConfig(max_tokens=limit)),
    ]
    scores = score_teachers(teacher, found, contexts)
    assert [one is None for one in scores] == [not isinstance(context, TeacherContext) for context in contexts]
    assert any(one is None for one in scores)
    assert score_teachers(teacher, found[1:2], contexts[1:2]) == [None]


def test_each_token_is_scored_at_its_own_temperature(teacher: Any, model: Any, episode: Episode) -> None:
    row = rows(episode)[0]
    heats = np.where(np.arange(len(row.ids_T)) % 5 < 2, 0.5, 2.0).astype(np.float32)
    mixed = replace(row, temperature_T=np.where(row.mask_T, heats, 1).astype(np.float32))
    (context,) = contexts = teacher_contexts(episode, [mixed], SKILLS, CHAT)
    assert isinstance(context, TeacherContext)
    (scores_T,) = score_teachers(teacher, [mixed], contexts)
    assert scores_T is not None
    cold, hot = (by_hand(model, context.ids_S, context.mask_S, heat) for heat in (0.5, 2.0))
    expected = np.where(heats[row.mask_T] == 0.5, cold, hot)
    assert np.allclose(scores_T[row.mask_T], expected, atol=1e-4)


def test_a_row_that_trains_nothing_asks_for_nothing(teacher: Any, episode: Episode) -> None:
    row = rows(episode)[0]
    idle = replace(row, mask_T=np.zeros_like(row.mask_T))
    (scores_T,) = score_teachers(teacher, [idle], teacher_contexts(episode, [idle], SKILLS, CHAT))
    assert scores_T is not None
    assert not scores_T.any()


class Fixed:
    fingerprint = CHAT.fingerprint

    def score(self, requests: Any) -> Any:
        raise AssertionError("nobody should ask")


def test_other_ids_are_refused_before_anybody_is_asked(episode: Episode) -> None:
    found = rows(episode)
    contexts = teacher_contexts(episode, found, SKILLS, CHAT)
    with pytest.raises(InvalidIds, match="other tokens"):
        score_teachers(Fixed(), found, contexts[::-1])
    with pytest.raises(ConfigError, match="one context"):
        score_teachers(Fixed(), found, contexts[:-1])
