"""Results and scores: what the table says is what the episodes say."""

from typing import Any

import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.evaluate import EpisodeResult, result_of, scores_of, wilson
from agentgym_tok.evaluate.results import ALFWORLD_LABELS, label_of
from agentgym_tok.harness import Harness
from agentgym_tok.trace import Episode, EpisodeHead

CHAT = ChatFormat.builtin()


def result(label: str, **parts: Any) -> EpisodeResult:
    whole = {
        "episode": "e",
        "task": "t",
        "label": label,
        "success": False,
        "reward": 0.0,
        "steps": 1,
        "turn_tokens": 10,
        "context_tokens": 20,
        "invalid_actions": 0,
        "format_errors": 0,
    }
    return EpisodeResult(**{**whole, **parts})


@pytest.mark.parametrize(
    ("task", "label"),
    [
        ("valid_unseen/pick_heat_then_place_in_recep-Apple-None-Fridge-10/trial_T1", "Heat"),
        ("ALFWorld-synth/train/pick_two_obj_and_place-CD-None-Desk-324/0119", "Pick2"),
        ("look_at_obj_in_light-Mug-None-DeskLamp-301/trial", "Look"),
        ("17", "other"),
    ],
)
def test_tasks_are_labelled_by_their_ids(task: str, label: str) -> None:
    assert label_of(task, ALFWORLD_LABELS) == label


def test_scores_are_rates_with_intervals_in_the_papers_order() -> None:
    results = [
        result("Cool", success=True, steps=4),
        result("Pick", success=True, steps=2),
        result("Pick", failure="policy: X: y"),
        result("other"),
    ]
    scores = scores_of(results)
    assert [(score.label, score.n, score.success) for score in scores] == [
        ("Pick", 2, 0.5),
        ("Cool", 1, 1.0),
        ("other", 1, 0.0),
        ("All", 4, 0.5),
    ]
    assert (scores[0].steps, scores[0].failures) == (1.5, 1)
    assert scores[-1].low < 0.5 < scores[-1].high


def test_a_world_without_kinds_of_task_has_one_line() -> None:
    assert [score.label for score in scores_of([result("other"), result("other")], [])] == ["All"]


def test_further_scores_are_means_with_intervals_and_count_failures_as_zero() -> None:
    results = [result("nq", metrics={"f1": value}) for value in (1.0, 0.5, 0.0, 0.5)]
    results += [result("popqa", metrics={"f1": 0.25})]
    scores = {score.label: score.metrics["f1"] for score in scores_of(results, ["popqa", "nq"])}
    assert list(scores) == ["popqa", "nq", "All"]
    assert [mean.mean for mean in scores.values()] == [0.25, 0.5, 0.45]
    assert (scores["nq"].low, scores["nq"].high) == wilson(2, 4)
    failed = Episode(EpisodeHead(id="e", task="nq/1"), (), "failed", success=False)
    assert result_of(failed, {"nq": "NQ"}, ["f1"]).metrics == {"f1": 0.0}
    assert result_of(failed, {"nq": "NQ"}).label == "NQ"


def test_no_results_are_no_scores() -> None:
    assert scores_of([]) == []


def test_a_result_counts_what_happened() -> None:
    says = iter(["<action>look</action>", "fly", "<action>fly</action>"])
    env = ALFWorldEnv(CHAT, split="valid_seen", max_steps=3)
    episode = Harness(lambda ids_T: CHAT.encode_turn(next(says)), CHAT).run(env, task=0)
    found = result_of(episode)
    assert (found.steps, found.invalid_actions, found.format_errors) == (3, 2, 1)
    assert (found.success, found.truncation, found.failure) == (False, "steps", None)
    assert found.turn_tokens == sum(len(turn.completion.ids_T) for turn in episode.turns)
    assert found.context_tokens == len(episode.turns[-1].context)


def test_a_failed_episode_is_not_solved_and_says_why() -> None:
    def fails(ids_T: np.ndarray) -> np.ndarray:
        raise RuntimeError("out of memory")

    found = result_of(Harness(fails, CHAT).run(ALFWorldEnv(CHAT), task=0))
    assert not found.success
    assert found.failure is not None
    assert "out of memory" in found.failure
