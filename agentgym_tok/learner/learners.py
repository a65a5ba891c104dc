"""Learners by name: `torch`, or a plug-in's."""

from typing import TYPE_CHECKING, Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.plugins import find_plugin

if TYPE_CHECKING:  # the names are listed where there is no torch
    from agentgym_tok.learner.losses import LossConfig
    from agentgym_tok.learner.torch_config import TorchConfig
    from agentgym_tok.learner.training import Trainable

__all__ = ["LEARNERS", "make_learner"]

LEARNERS = ("torch",)
"""The names of the library's own."""

_MEMBERS = ("loss", "version", "update", "weights", "state", "load_state")


def make_learner(name: str, model: str, chat: ChatFormat, loss: "LossConfig", config: "TorchConfig") -> "Trainable":
    """Return a learner by its name.

    Args:
        name: `"torch"`, or a plug-in's.
        model: Folder or name of the model that training begins with.
        chat: The chat format.
        loss: What is minimised.
        config: How optimizer steps are taken.

    Raises:
        UnknownName: No learner has this name.
        ConfigError: A plug-in is broken.
    """
    if name in LEARNERS:
        from agentgym_tok.learner.torch_learner import TorchLearner  # noqa: PLC0415  # extra `torch`

        return TorchLearner(model, chat, loss, config)
    plugin = find_plugin("learner", name, LEARNERS, where="learner_class")
    learner: Any = plugin.load()(model, chat, loss, config)
    missing = [member for member in _MEMBERS if not hasattr(learner, member)]
    if missing:
        got = f"{type(learner).__name__} without {', '.join(missing)}"
        raise plugin.broken(got, expected="a Trainable, see agentgym_tok.learner.training.trainable")
    made: Trainable = learner
    return made
