"""A configuration is whole, whatever part of it is given, and what does not go together is said."""

from typing import Any

import pytest
from pydantic import ValidationError

from agentgym_tok.errors import ConfigError, UnknownName
from agentgym_tok.learner import ADVANTAGES
from agentgym_tok.learner.losses import OBJECTIVES
from agentgym_tok.learner.training import TrainConfig
from agentgym_tok.learner.training.plan import describe, terms

TAUGHT: dict[str, Any] = {"objective": "sdar", "skills": {"bank": "alfworld"}}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_named_objective_is_the_published_one_and_survives_being_saved(objective: str) -> None:
    config = TrainConfig(objective=objective)
    assert config.loss == OBJECTIVES[objective]
    assert TrainConfig(**config.model_dump()) == TrainConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objectives_of_the_same_scripts_compare_rollouts_alike(objective: str) -> None:
    # Theirs are known by the settings that they share, whatever their names are.
    shared = {"dual_clip", "kl_coefficient", "entropy_coefficient"}
    scripts = OBJECTIVES["verl_agent_grpo"].model_dump(include=shared)
    estimator = objective if objective in ADVANTAGES else "grpo"
    if OBJECTIVES[objective].model_dump(include=shared) == scripts:
        estimator = "verl_agent_grpo"
    assert TrainConfig(objective=objective).advantages == ADVANTAGES[estimator]


def test_what_is_given_of_a_loss_lies_over_the_named_one() -> None:
    config = TrainConfig(objective="sdar", loss={"beta": 0.0}, estimator="gigpo", advantages={"lone": "return"})  # type: ignore[arg-type]
    assert config.loss == OBJECTIVES["sdar"].model_copy(update={"beta": 0.0})
    assert config.advantages == ADVANTAGES["gigpo"].model_copy(update={"lone": "return"})


def test_the_coefficient_of_distillation_falls_in_a_straight_line() -> None:
    config = TrainConfig(objective="rlsd", distillation_decay=100)
    assert [config.loss_of(step).distillation_coefficient for step in (0, 50, 100, 149)] == [0.5, 0.25, 0, 0]
    assert TrainConfig(objective="rlsd").loss_of(149) == OBJECTIVES["rlsd"]


def test_unknown_names_come_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"unknown objective; .*got: 'sdr'; expected: .*; next: did you mean sdar"):
        TrainConfig(objective="sdr")
    with pytest.raises(UnknownName, match="unknown estimator"):
        TrainConfig(estimator="grop")
    with pytest.raises(ValidationError, match="bogus"):
        TrainConfig(bogus=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objective": "sdar"}, "needs a teacher"),
        ({**TAUGHT, "skills": {"bank": "alfworld", "readers": ("student",)}}, "needs a teacher"),
        ({"objective": "opd"}, "needs a teacher"),
        ({**TAUGHT, "objective": "skill_grpo"}, "students read skills"),
        ({**TAUGHT, "objective": "opsd_full", "teacher": "hf:x"}, "whole distributions"),
        ({"objective": "dr_grpo"}, "divides by a constant"),
        ({"tasks": 2, "learner": {"minibatches": 3}}, "fewer tasks"),
        ({"objective": "sft", "staleness": 1}, "neither stale"),
        ({"objective": "sft", "skills": {"bank": "alfworld", "grow_every": 1}}, "skills grow"),
        (
            {"staleness": 1, "skills": {"bank": "alfworld", "retrieval": "ucb", "readers": ("student",)}},
            "a bandit",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_way_out(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"{said}.*; where: training; got: .*; expected: .*; next: "):
        TrainConfig(**options).checked()


def test_what_goes_together_is_not_refused() -> None:
    for options in (
        TAUGHT,
        {"objective": "opd", "teacher": "hf:x"},
        {"objective": "dr_grpo", "loss": {"horizon": 512}},
        {"objective": "sft", "skills": {"bank": "alfworld"}},
        {"objective": "sdar", "loss": {"distillation_coefficient": 0}},
    ):
        config = TrainConfig(**options)  # type: ignore[arg-type]
        assert config.checked() is config


def test_the_plan_names_every_term_with_its_coefficient() -> None:
    assert list(terms(OBJECTIVES["sdar"])) == [
        "1 x clip, clips 0.2 and 0.2, dual clip 3",
        "0.01 x KL to the first model (k3, in the loss)",
        "-0.001 x entropy",
        "0.01 x sdar, gate gap, beta 5",
        "aggregated by token-mean",
    ]
    assert next(iter(terms(OBJECTIVES["opsd_full"]))) == "1 x opsd_full, reverse_kl"
    plan = describe(TrainConfig(**TAUGHT), max_steps=50, max_context=2048)
    assert plan["a step"] == "16 tasks x 8 rollouts = 128 rollouts"
    assert plan["tokens a step"] == f"at most {128 * 50 * 512:,}, in contexts of at most 2,048"
    assert plan["skills"] == "bank alfworld, retrieval keyword, read by teacher"
