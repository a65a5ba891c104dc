"""Results: what they say is what the episodes say."""

import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.evaluate import result_of
from agentgym_tok.evaluate.results import ALFWORLD_LABELS, label_of
from agentgym_tok.harness import Harness
from agentgym_tok.trace import Episode, EpisodeHead

CHAT = ChatFormat.builtin()


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


def test_a_failed_episode_scores_zero_in_all_that_the_world_scores() -> None:
    failed = Episode(EpisodeHead(id="e", task="nq/1", replica=2, seed=7), (), "failed", success=False)
    found = result_of(failed, {"nq": "NQ"}, ["f1"], "search")
    assert (found.metrics, found.label, found.part) == ({"f1": 0.0}, "NQ", "search")
    assert (found.replica, found.seed, found.opening) == (2, 7, "")


def test_equal_openings_have_equal_digests() -> None:
    def opening(task: int, prompting: str) -> str:
        env = ALFWorldEnv(CHAT, split="valid_seen", max_steps=1, prompting=prompting)
        return result_of(Harness("explorer", CHAT).run(env, task=task)).opening

    assert opening(0, "transcript") == opening(0, "step") != opening(1, "step")


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
