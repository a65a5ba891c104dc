"""Adapters of low rank, through peft (extra `lora`)."""

import importlib
import warnings
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from agentgym_tok.errors import MissingExtra
from agentgym_tok.learner.torch_config import LoraConfig

__all__ = ["Adapters"]

_NAME = "default"


class Adapters:
    """Put adapters into a model, in place; at first they add nothing.

    Args:
        model: The model; from now on the adapters alone are trained.
        config: Their size and places.
        seed: What they start from.

    Raises:
        MissingExtra: peft is not installed.
    """

    def __init__(self, model: nn.Module, config: LoraConfig, *, seed: int) -> None:
        try:
            peft: Any = importlib.import_module("peft")
        except ImportError as error:
            raise MissingExtra(
                "adapters need peft", where="TorchConfig.lora", fix='pip install "agentgym-tok[lora]"'
            ) from error
        targets = config.targets if isinstance(config.targets, str) else list(config.targets)
        made = peft.LoraConfig(
            r=config.rank, lora_alpha=config.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM"
        )
        with torch.random.fork_rng(), warnings.catch_warnings():
            # peft asks transformers by a name that is going away.
            warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
            torch.manual_seed(seed)
            self._wrapped: Any = peft.get_peft_model(model, made, adapter_name=_NAME)
        self._model = model

    def off(self) -> AbstractContextManager[None]:
        """Return the context in which the model is what it was."""
        context: AbstractContextManager[None] = self._wrapped.disable_adapter()
        return context

    @torch.no_grad()
    def merged(self) -> dict[str, Tensor]:
        """Return the weights of the model with what the adapters add, by the names of the model without them.

        Nothing is written into the model: adding and subtracting again would not lead back to its weights.
        """
        merged: dict[str, Tensor] = {}
        layers: dict[str, Any] = dict(self._model.named_modules())
        for name, tensor in self._model.state_dict().items():
            before, is_wrapped, part = name.partition(".base_layer.")
            if is_wrapped:
                added = layers[before].get_delta_weight(_NAME) if part == "weight" else None
                merged[f"{before}.{part}"] = tensor if added is None else tensor + added.to(tensor.dtype)
            elif ".lora_" not in name:
                merged[name] = tensor
        return merged
