"""Training a policy on a world: rollouts, rows, updates, and weights back to the engine (extra `torch`)."""

from agentgym_tok.learner.training.config import Evaluation, SkillUse, TrainConfig
from agentgym_tok.learner.training.loop import Training
from agentgym_tok.learner.training.trainable import Trainable

__all__ = ["Evaluation", "SkillUse", "TrainConfig", "Trainable", "Training"]
