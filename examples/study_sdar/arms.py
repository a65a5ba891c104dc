"""What is compared: each arm with its seeds, and what it changes in the run that all share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ARMS", "BASE", "Arm"]

BASE: Mapping[str, Any] = {
    "steps": 64,
    "tasks": 4,
    "group_size": 8,
    "save_every": 8,
    "sampling": {"temperature": 1.0, "max_tokens": 32},
    "learner": {"device": "cpu", "learning_rate": 3e-4, "weight_decay": 0.0},
}
"""64 updates of 4 groups of 8 rollouts: 2,048 episodes."""

_TEACHER: Mapping[str, Any] = {"bank": "alfworld", "retrieval": "keyword", "readers": ["teacher"]}
_STUDENT: Mapping[str, Any] = {**_TEACHER, "readers": ["student"]}


@dataclass(frozen=True, slots=True)
class Arm:
    """Hold one line of the table.

    Args:
        objective: A name of `agentgym_tok.learner.losses.OBJECTIVES`.
        seeds: How many runs.
        options: What it changes in `BASE`.
        tests: With which skills its last model is tested: without, or with those that `_STUDENT` names.
    """

    objective: str
    seeds: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)
    tests: Sequence[bool] = (False,)


def _sdar(**skills: Any) -> Mapping[str, Any]:
    return {"skills": {**_TEACHER, **skills}}


ARMS: Mapping[str, Arm] = {
    "grpo": Arm("verl_agent_grpo", seeds=5),
    "sdar": Arm("sdar", seeds=5, options=_sdar()),
    "grpo_opsd": Arm("grpo_opsd", options=_sdar()),
    "grpo_opsd_paper": Arm("grpo_opsd_paper", options=_sdar()),
    "grpo_opsd_true": Arm(
        "verl_agent_grpo",
        options={**_sdar(), "loss": {"distillation": "opsd_full", "distillation_coefficient": 0.01}},
    ),
    "opsd": Arm("opsd", options=_sdar()),
    "opsd_full": Arm("opsd_full", options=_sdar()),
    "skill_sd": Arm("skill_sd", options=_sdar()),
    "rlsd": Arm("rlsd", options={**_sdar(), "distillation_decay": 43}),
    "skill_grpo": Arm("skill_grpo", options={"skills": _STUDENT}, tests=(False, True)),
    "sdar_ucb": Arm("sdar", options=_sdar(retrieval="ucb")),
    "sdar_full": Arm("sdar", options=_sdar(retrieval="full")),
    "sdar_random": Arm("sdar", options=_sdar(retrieval="random")),
    "sdar_entropy": Arm("sdar", options={**_sdar(), "loss": {"gate": "entropy"}}),
    "sdar_soft_or": Arm("sdar", options={**_sdar(), "loss": {"gate": "soft_or"}}),
    "sdar_strong": Arm("sdar", options={**_sdar(), "loss": {"distillation_coefficient": 0.1}}),
}
"""The order is that of the table. `rlsd` falls to 0 after two thirds of its steps, as its 100 of 150."""
