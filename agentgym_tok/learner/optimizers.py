"""The optimizers of a learner: AdamW for all weights, or Muon for the matrices inside and AdamW for the rest."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from agentgym_tok.learner.torch_config import TorchConfig

__all__ = ["Optimizers", "make_optimizers"]


class Optimizers:
    """Take the steps of one or more optimizers as one.

    Args:
        parts: Each has weights of its own.
    """

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self._parts = parts

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for part in self._parts:
            part.zero_grad()

    def step(self, rate: float) -> None:
        """Take a step.

        Args:
            rate: The learning rate of all.
        """
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Return what the next step depends on besides the weights."""
        return {str(place): part.state_dict() for place, part in enumerate(self._parts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        for place, part in enumerate(self._parts):
            part.load_state_dict(state[str(place)])


def make_optimizers(model: nn.Module, trained: Mapping[str, nn.Parameter], config: TorchConfig) -> Optimizers:
    """Return the optimizers of a configuration.

    Muon (Jordan, 2024) is for matrices that multiply activations: embeddings, the head, biases and norms stay with
    AdamW. Its updates are scaled as AdamW's are (Moonlight, arXiv 2502.16982), so that both have one learning rate.

    Args:
        model: Its embeddings and head are found in it.
        trained: The weights that are trained, by name.
        config: How steps are taken.
    """

    def adamw(weights: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(weights, lr=0.0, betas=config.betas, weight_decay=config.weight_decay)

    if config.optimizer == "adamw":
        return Optimizers(adamw([*trained.values()]))
    outer = {id(weight) for weight in _embeddings(model)}
    inner = [weight for weight in trained.values() if weight.ndim == 2 and id(weight) not in outer]
    known = {id(weight) for weight in inner}
    rest = [weight for weight in trained.values() if id(weight) not in known]
    muon = torch.optim.Muon(inner, lr=0.0, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw")
    return Optimizers(muon, *([adamw(rest)] if rest else ()))


def _embeddings(model: Any) -> Iterator[nn.Parameter]:
    for module in (model.get_input_embeddings(), model.get_output_embeddings()):
        if module is not None:
            yield from module.parameters()
