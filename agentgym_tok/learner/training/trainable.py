"""What the training loop asks of a learner."""

from collections.abc import Mapping
from typing import Any, Protocol

from agentgym_tok.learner.batch import Batch
from agentgym_tok.learner.losses import LossConfig

__all__ = ["Trainable"]


class Trainable(Protocol):
    """Learn from batches, hand weights out, and go on from a state; `TorchLearner` does."""

    loss: LossConfig

    @property
    def version(self) -> str:
        """The label of the weights; another one after each update."""
        ...

    def update(self, batch: Batch) -> Mapping[str, float]:
        """Take one update, and return its figures by name."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """Return the weights for `Policy.update_weights`."""
        ...

    def state(self) -> Mapping[str, Any]:
        """Return all that the next update depends on, for `write_checkpoint`."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        ...
