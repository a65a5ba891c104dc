"""How a `TorchLearner` trains: its few options."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from agentgym_tok.config import Config

__all__ = ["LoraConfig", "TorchConfig"]


class LoraConfig(Config):
    """Train adapters of low rank, and leave the model as it is (extra `lora`).

    Args:
        rank: Of each adapter.
        alpha: What they add is multiplied by alpha / rank.
        targets: Names of the layers that have one, as peft takes them.
    """

    rank: PositiveInt = 16
    alpha: PositiveInt = 32
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class TorchConfig(Config):
    """Say how steps are taken; what is minimised stands in `LossConfig`.

    Args:
        device: Such as `"cpu"` or `"cuda"`; None takes a GPU where there is one.
        optimizer: `muon` takes the matrices inside the model from AdamW; a new model learns in fewer steps by it. For
            models that were pretrained by AdamW, and for adapters, stay with `adamw`.
        learning_rate: After the warm-up.
        warmup: Steps in which it rises to that.
        decay: Steps after which it has fallen to 0, in a straight line from the warm-up's end; None keeps it.
        weight_decay: Decoupled.
        betas: Of AdamW.
        max_grad_norm: Longer gradients are cut to this length.
        micro_tokens: Most tokens of one forward and backward pass, shared ones counted once. It changes memory and
            speed, and no result. A longer row is not cut: it is a pass of its own.
        minibatches: Optimizer steps that the groups of an update are dealt out to, whole. The denominators are those
            of each step.
        epochs: How often an update goes through its rows.
        precision: `bfloat16` computes passes with autocast; weights, losses and optimizer stay as they are.
        gradient_checkpointing: Compute layers again for their gradients: about a third slower, far less memory.
        lora: Train adapters alone; None trains whatever the model says is trained.
        packed: False computes row by row, to compare.
        seed: Of the order of mini-batches, and of adapters.
    """

    device: str | None = None
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = Field(default=1e-6, ge=0)
    warmup: int = Field(default=0, ge=0)
    decay: PositiveInt | None = None
    weight_decay: float = Field(default=0.01, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: PositiveFloat = 1.0
    micro_tokens: PositiveInt = 16_384
    minibatches: PositiveInt = 1
    epochs: PositiveInt = 1
    precision: Literal["full", "bfloat16"] = "full"
    gradient_checkpointing: bool = False
    lora: LoraConfig | None = None
    packed: bool = True
    seed: int = Field(default=0, ge=0)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        if self.decay is None:
            return self.learning_rate
        left = self.decay - step
        return self.learning_rate * max(0, left) / max(1, self.decay - self.warmup)
