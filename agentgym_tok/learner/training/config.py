"""How a policy is trained, in one frozen model: what is played, what is minimised, and how often what happens."""

from collections.abc import Mapping
from typing import Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError, unknown_name
from agentgym_tok.learner.estimation import ADVANTAGES, AdvantageConfig
from agentgym_tok.learner.losses import OBJECTIVES, LossConfig
from agentgym_tok.learner.teacher import TeacherConfig
from agentgym_tok.learner.torch_config import TorchConfig
from agentgym_tok.skills import RETRIEVERS, Growth
from agentgym_tok.types import Sampling

__all__ = ["Evaluation", "Reader", "SkillUse", "TrainConfig"]

Reader: TypeAlias = Literal["teacher", "student", "evaluation"]

_SCRIPTED = ("skill_grpo", "sdar", "opsd", "grpo_opsd", "grpo_opsd_paper", "skill_sd", "rlsd")
"""Objectives of SDAR's scripts besides `verl_agent_grpo`: with other advantages they would not be compared with it."""


class SkillUse(Config):
    """Say which skills there are, and who reads them."""

    bank: str = Field(description="alfworld, webshop, searchqa, or the file or folder of a bank")
    retrieval: str = Field(default="keyword", description=f"one of {', '.join(RETRIEVERS)}, or a plug-in's")
    options: dict[str, Any] = Field(default_factory=dict, description="of the rule, such as c of ucb, as JSON")
    readers: tuple[Reader, ...] = Field(
        default=("teacher",),
        description="teacher: beside the rollouts; student: in its prompts, when it trains; evaluation: when tested",
    )
    teacher: TeacherConfig = Field(default=TeacherConfig(), description="where they stand, and how long they may be")
    grow_every: int = Field(default=0, ge=0, description="steps after which the policy adds skills; 0 adds none")
    growth: Growth = Field(default=Growth(), description="when a category gets new skills")


class Evaluation(Config):
    """Say when and how the policy is tested on tasks that it is not trained on."""

    every: int = Field(default=0, ge=0, description="steps between two tests; 0 makes none")
    first: bool = Field(default=False, description="test before the first step, too")
    episodes: int | None = Field(default=128, ge=1, description="how many tasks, always the same; all without it")
    sampling: Sampling = Field(default=Sampling(temperature=0.4), description="how turns are drawn")


class TrainConfig(Config):
    """Hold all that a training run depends on besides its world, its model and its policy.

    `loss` and `advantages` may be given in part: what is left out is that of `objective` and `estimator`.
    """

    objective: str = Field(default="verl_agent_grpo", description="a published objective, which `loss` may change")
    loss: LossConfig = Field(default=LossConfig(), description="what is minimised")
    estimator: str | None = Field(
        default=None,
        description="published advantages; without it the objective's own: verl_agent_grpo for what SDAR's scripts "
        "train by, the namesake of others, else grpo",
    )
    advantages: AdvantageConfig = Field(default=AdvantageConfig(), description="how rollouts are compared")
    distillation_decay: int | None = Field(
        default=None, ge=1, description="steps in which the coefficient of distillation falls to 0, for RLSD"
    )
    teacher: str | None = Field(
        default=None, description="a policy that scores in the student's place, such as hf:PATH (opd)"
    )
    demonstrations: str = Field(
        default="expert", description="whom sft imitates: explorer, expert or another policy, or trace:FOLDER,FOLDER"
    )
    student_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of the tasks of sft that the student plays itself, corrected by the explorer (DAgger)",
    )
    learner: TorchConfig = Field(default=TorchConfig(), description="how optimizer steps are taken")
    steps: int = Field(default=150, ge=1, description="updates of the whole run")
    tasks: int = Field(default=16, ge=1, description="tasks of a step")
    group_size: int = Field(default=8, ge=1, description="rollouts of each task")
    redraw: int = Field(default=0, ge=0, description="rounds in which groups of equal returns are replaced (DAPO)")
    sampling: Sampling = Field(default=Sampling(max_tokens=512), description="how turns are drawn")
    concurrency: int = Field(default=64, ge=1, description="most episodes in flight")
    turn_timeout_s: float | None = Field(default=None, gt=0, description="longest wait for one turn; None waits")
    staleness: int = Field(
        default=0, ge=0, description="updates that rollouts may lag behind; above 0 the next are drawn while one trains"
    )
    skills: SkillUse | None = Field(default=None, description="skills for teachers or students")
    evaluation: Evaluation = Field(default=Evaluation(), description="tests on held-out tasks")
    save_every: int = Field(default=10, ge=1, description="steps between two checkpoints")
    seed: int = Field(default=0, ge=0, description="of tasks, turns and everything else that is drawn")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """Lay what is given of `loss` and `advantages` over what their names stand for."""
        if not isinstance(given, Mapping):
            return given
        objective = given.get("objective", cls.model_fields["objective"].default)
        if objective not in OBJECTIVES:
            raise unknown_name("objective", objective, OBJECTIVES, where="objective")
        estimator = given.get("estimator") or _estimator_of(objective)
        if estimator not in ADVANTAGES:
            raise unknown_name("estimator", estimator, ADVANTAGES, where="estimator")
        bases = {"loss": OBJECTIVES[objective], "advantages": ADVANTAGES[estimator]}
        return {**given, **{name: _over(base, given.get(name)) for name, base in bases.items()}}

    @property
    def imitates(self) -> bool:
        """Whether demonstrations are trained, and nothing is compared."""
        return self.loss.policy == "nll"

    @property
    def student_tasks(self) -> int:
        """How many tasks of a step the student plays in imitation, the first ones; the others are demonstrated."""
        return round(self.student_share * self.tasks)

    @property
    def distils(self) -> bool:
        """Whether a teacher is needed."""
        return self.loss.distillation != "none" and self.loss.distillation_coefficient > 0

    def read_by(self, reader: Reader) -> bool:
        """Tell whether somebody reads skills."""
        return self.skills is not None and reader in self.skills.readers

    def loss_of(self, step: int) -> LossConfig:
        """Return what a step minimises, counted from 0: the coefficient of distillation may fall in a straight line."""
        if self.distillation_decay is None:
            return self.loss
        left = max(0.0, 1 - step / self.distillation_decay)
        return self.loss.model_copy(update={"distillation_coefficient": self.loss.distillation_coefficient * left})

    def checked(self) -> Self:
        """Return it where all that was chosen goes together.

        Raises:
            ConfigError: It does not.
        """
        for wrong, what, got, expected, fix in self._conflicts():
            if wrong:
                raise ConfigError(what, where="training", got=got, expected=expected, fix=fix)
        return self

    def _conflicts(self) -> tuple[tuple[bool, str, str, str, str], ...]:
        objective = f"objective {self.objective}"
        skills, parts = self.skills, self.learner.minibatches
        taught, shown = self.teacher is not None or self.read_by("teacher"), self.read_by("student")
        return (
            (
                self.distils and not taught,
                "the objective needs a teacher, and nobody is one",
                f"{objective}, no skills that a teacher reads, and no teacher",
                "skills.bank, or for opd a model that scores: teacher",
                "give --skills.bank alfworld, or --teacher hf:PATH",
            ),
            (
                self.objective == "skill_grpo" and not shown,
                "skill_grpo is GRPO whose students read skills",
                "readers " + (", ".join(skills.readers) if skills else "of no bank"),
                "student among skills.readers",
                "give --skills.bank and --skills.readers student",
            ),
            (
                self.loss.distillation == "opsd_full" and self.teacher is not None,
                "opsd_full compares whole distributions, which another model does not give",
                f"teacher {self.teacher}",
                "no teacher but the student with skills",
                "leave --teacher out, or take --objective opd",
            ),
            (
                self.loss.aggregation == "seq-mean-token-sum-norm" and self.loss.horizon is None,
                "the aggregation divides by a constant, which is not given",
                objective,
                "loss.horizon, tokens",
                "give --loss.horizon, such as the most tokens of a rollout",
            ),
            (
                parts > self.tasks,
                "there are fewer tasks in a step than mini-batches, and groups stay whole",
                f"{self.tasks} tasks, learner.minibatches {parts}",
                "as many tasks as mini-batches, or more",
                "raise --tasks or lower --learner.minibatches",
            ),
            (
                self.imitates and (self.staleness > 0 or self.redraw > 0),
                "demonstrations are neither stale nor drawn again",
                f"{objective}, staleness {self.staleness}, redraw {self.redraw}",
                "0 for both",
                "leave --staleness and --redraw out",
            ),
            (
                self.student_share > 0 and not self.imitates,
                "a student is corrected in imitation only",
                f"{objective}, student_share {self.student_share}",
                "objective sft",
                "leave --student-share out",
            ),
            (
                skills is not None and skills.grow_every > 0 and self.imitates,
                "skills grow from what the policy fails in, and here it plays nothing",
                f"{objective}, skills.grow_every",
                "skills.grow_every 0",
                "grow skills in a run of reinforcement",
            ),
            (
                skills is not None and skills.retrieval == "ucb" and shown and self.staleness > 0,
                "a bandit whose choices students read is told of each step before the next begins",
                f"retrieval ucb, reader student, staleness {self.staleness}",
                "staleness 0",
                "leave --staleness out, or take another --skills.retrieval",
            ),
        )


def _over(base: Config, given: Any) -> Any:
    if given is None:
        return base
    return {**base.model_dump(), **given} if isinstance(given, Mapping) else given


def _estimator_of(objective: str) -> str:
    if objective in _SCRIPTED:
        return "verl_agent_grpo"
    return objective if objective in ADVANTAGES else "grpo"
