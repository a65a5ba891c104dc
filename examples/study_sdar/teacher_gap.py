"""Measure what the teacher says of the warm start's own rollouts, and what each arm makes of it, before any training.

    python examples/study_sdar/teacher_gap.py        # five minutes; ALFWORLD_DATA names the games

Two questions. Does the gap tell a good turn from a bad one? The explorer says what is good. And how much of an arm's
first gradient comes from the teacher?
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cell import CHAT, SKILLS, Cell, Worlds
from numpy.typing import NDArray
from run import WARM

from agentgym_tok import Sampling
from agentgym_tok.envs.alfworld.explorer import ALFWorldExplorer
from agentgym_tok.harness import Harness
from agentgym_tok.learner import Batch
from agentgym_tok.learner.estimation import with_advantages
from agentgym_tok.learner.losses.sdar import gate
from agentgym_tok.learner.torch_learner import TorchLearner
from agentgym_tok.learner.training.corrections import advice
from agentgym_tok.learner.training.skill_store import SkillStore
from agentgym_tok.policies import load_policy
from agentgym_tok.trace import Episode, Row, rows

__all__ = ["Judged", "area", "judged", "terms"]

ADDED = (
    "sdar",
    "grpo_opsd",
    "grpo_opsd_paper",
    "grpo_opsd_true",
    "skill_sd",
    "rlsd",
    "sdar_entropy",
    "sdar_soft_or",
    "sdar_strong",
)
"""Arms whose objective is GRPO's and what a teacher says, who reads the skills that keywords find."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Hold what is said of the turns of rollouts, where the explorer knows a way on.

    Args:
        good_N: bool; the explorer would have said the same.
        gap_N: The teacher's gap, summed over the turn, nats.
        logprob_N: What the student gave to the turn, nats.
        gap_T: The gap of each of their tokens, nats.
    """

    good_N: NDArray[np.bool_]
    gap_N: NDArray[Any]
    logprob_N: NDArray[Any]
    gap_T: NDArray[Any]


def judged(
    episodes: Sequence[Episode], given: Sequence[Row], student: Sequence[NDArray[Any]], teacher: Sequence[NDArray[Any]]
) -> Judged:
    """Sum up turn by turn what student and teacher say of what the student said.

    Args:
        episodes: Rollouts.
        given: The row of each.
        student: Of each row, float [T], nats.
        teacher: The same, of the teacher.
    """
    good, gaps, logprobs, tokens = [], [], [], []
    for episode, row, student_T, teacher_T in zip(episodes, given, student, teacher, strict=True):
        for turn, command in zip(episode.steps, advice(ALFWorldExplorer(), episode.steps), strict=True):
            places_T = row.mask_T & (row.turn_T == turn.index)
            if command is None or not places_T.any():
                continue
            gap_K = (teacher_T - student_T)[places_T]
            good.append(turn.action_text == command)
            gaps.append(gap_K.sum())
            logprobs.append(student_T[places_T].sum())
            tokens.append(gap_K)
    return Judged(np.array(good), np.array(gaps), np.array(logprobs), np.concatenate(tokens))


def area(values_N: NDArray[Any], good_N: NDArray[np.bool_]) -> float:
    """Return how often a good one has the higher value, of all pairs of a good and a bad one; ties count one half."""
    bad = np.sort(values_N[~good_N])
    below = np.searchsorted(bad, values_N[good_N], "left") + np.searchsorted(bad, values_N[good_N], "right")
    return float(below.mean()) / 2 / len(bad)


def terms(
    model: Path, given: Sequence[Row], contexts: Sequence[Any], worlds: Worlds, arms: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return of each arm what the teacher adds to GRPO's gradient: its length over that one's, and their cosine."""

    def gradient(arm: str) -> torch.Tensor:
        config = Cell(arm, 0, Path(), model, worlds, {}).config()
        learner = TorchLearner(model, CHAT, config.loss, config.learner)
        teachers = contexts if config.distils else None
        learner.backward(Batch(with_advantages(given, config.advantages), teachers=teachers))
        return torch.cat([part.grad.flatten() for part in learner.model.parameters() if part.grad is not None])

    grpo, found = gradient("grpo"), {}
    for arm in arms:
        added = gradient(arm) - grpo
        found[arm] = (float(added.norm() / grpo.norm()), float(torch.cosine_similarity(added, grpo, dim=0)))
    return found


def main() -> None:
    """Play, score and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", choices=["official", "synth"], default="official", help="of the train games")
    parser.add_argument("--games", type=int, default=16, help="how many, drawn at random; each is played 8 times")
    parser.add_argument("--arm", action="append", choices=ADDED, default=[], help="only this one; may be repeated")
    options = parser.parse_args()
    worlds = Worlds(source=options.source)
    tasks = np.random.default_rng(0).permutation(worlds.train().engine.tasks())[: options.games].tolist()
    harness = Harness(load_policy(f"numpy:{WARM}", CHAT), CHAT, sampling=Sampling(temperature=1.0, max_tokens=32))
    episodes = harness.run_many(worlds.train, tasks, group_size=8, concurrency=64, seed=0)
    parts = [rows(episode) for episode in episodes]
    given = [row for part in parts for row in part]
    contexts = SkillStore(SKILLS, CHAT, 0).teach(episodes, parts)
    learner = TorchLearner(WARM, CHAT, Cell("sdar", 0, Path(), WARM, worlds, {}).config().loss)
    student = learner.score(given)
    teacher = [
        own if read is None else read
        for own, read in zip(student, learner.score_teachers(given, contexts), strict=True)
    ]
    found = judged(episodes, given, student, teacher)
    good_N, gate_T = found.good_N, gate(torch.from_numpy(found.gap_T)).numpy()
    gaps = [float(found.gap_N[chosen_N].mean()) for chosen_N in (good_N, ~good_N)]
    higher = [100 * area(values_N, good_N) for values_N in (found.gap_N, found.logprob_N)]
    print(
        f"{len(episodes)} rollouts, {100 * np.mean([bool(one.success) for one in episodes]):.1f} % solved\n"
        f"{len(good_N)} turns, {100 * good_N.mean():.1f} % as the explorer's\n"
        f"gap of a turn: {gaps[0]:+.3f} nats where it is as the explorer's, {gaps[1]:+.3f} elsewhere\n"
        f"a turn as the explorer's has the higher gap in {higher[0]:.1f} % of pairs, "
        f"and the higher likelihood in {higher[1]:.1f} %\n"
        f"gate: mean {gate_T.mean():.3f}, standard deviation {gate_T.std():.3f}, "
        f"{100 * (abs(gate_T - 0.5) < 0.05).mean():.1f} % between 0.45 and 0.55\n\n"
        "| arm | what the teacher adds to GRPO's gradient, % of its length | cosine |\n| --- | --- | --- |"
    )
    for arm, (length, cosine) in terms(WARM, given, contexts, worlds, options.arm or ADDED).items():
        print(f"| {arm} | {100 * length:.1f} | {cosine:+.2f} |")


if __name__ == "__main__":
    main()
