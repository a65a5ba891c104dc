"""The model that is trained, with adapters or without, and its reference."""

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, DataMissing
from agentgym_tok.learner.forward import Forward
from agentgym_tok.learner.lora import Adapters
from agentgym_tok.learner.packing import deal
from agentgym_tok.learner.token_scores import token_scores
from agentgym_tok.learner.torch_config import TorchConfig
from agentgym_tok.learner.trained_row import By, TrainedRow, joined
from agentgym_tok.policies.model_ids import check_model_ids
from agentgym_tok.policies.weights import digest

__all__ = ["Student"]


class Student:
    """Hold a model, and score rows by it.

    Args:
        model: See `TorchLearner`.
        chat: See `TorchLearner`.
        config: See `TorchConfig`.
        referred: A reference is needed: without adapters a copy of the model is kept.
    """

    def __init__(self, model: str | Path | nn.Module, chat: ChatFormat, config: TorchConfig, *, referred: bool) -> None:
        self._config = config
        device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
        loaded: Any = _load(model, chat)
        self.model = loaded.to(device)
        self.limit = int(getattr(self.model.config, "max_position_embeddings", None) or 2**31)
        """Most ids that it reads."""
        vocab_size, autocast = chat.vocab_size, config.precision == "bfloat16"
        self._reference: Forward | None = None
        if referred and config.lora is None:
            kept = copy.deepcopy(self.model).requires_grad_(False)
            self._reference = Forward(kept, vocab_size=vocab_size, autocast=autocast, packed=config.packed)
        self._adapters = None if config.lora is None else Adapters(self.model, config.lora, seed=config.seed)
        self.forward = Forward(self.model, vocab_size=vocab_size, autocast=autocast, packed=config.packed)
        if config.gradient_checkpointing:
            _compute_layers_again(self.model)
        self.trained: dict[str, nn.Parameter] = {
            name: value for name, value in self.model.named_parameters() if value.requires_grad
        }
        """What is trained, by name."""

    def weights(self) -> dict[str, Tensor]:
        """Return all weights by the model's own names, adapters merged."""
        if self._adapters is not None:
            return self._adapters.merged()
        return {name: value.detach() for name, value in self.model.state_dict().items()}

    @cached_property
    def fixed(self) -> dict[str, str]:
        """Return digests of weights that score and are never trained: a reference's, or those under adapters."""
        if self._reference is not None:
            return {name: digest(value) for name, value in self._reference.model.named_parameters()}
        return {name: digest(value) for name, value in self.model.named_parameters() if name not in self.trained}

    def filled(self, rows: Sequence[TrainedRow], by: By) -> list[TrainedRow]:
        """Score rows that nobody has scored; those without a teacher's sequence have no teacher's scores."""
        missing = [place for place, row in enumerate(rows) if by not in row.scores and (by != "teacher" or row.teacher)]
        if not missing:
            return list(rows)
        scored = list(rows)
        for place, scores_K in zip(missing, self.score([rows[place] for place in missing], by), strict=True):
            scored[place] = rows[place].scored(by, scores_K)
        return scored

    @torch.no_grad()
    def score(self, rows: Sequence[TrainedRow], by: By) -> list[Tensor]:
        """Score the trained tokens of rows.

        Returns:
            For each row float [K], nats, at the temperature of the tokens.

        Raises:
            ConfigError: There is no reference.
        """
        forward, context = self._scorer(by)
        sequences = [row.teacher or row.asked if by == "teacher" else row.asked for row in rows]
        found: list[Tensor] = [torch.zeros(0)] * len(rows)
        with context:
            for places in deal(sequences, self._config.micro_tokens, shared=forward.packed):
                picked = [rows[place] for place in places]
                logprobs_K = token_scores(
                    forward,
                    forward.features([sequences[place] for place in places]),
                    joined([row.ids_K for row in picked], forward.device),
                    joined([row.temperature_K for row in picked], forward.device),
                ).logprobs_K
                parts = torch.split(logprobs_K, [len(row.ids_K) for row in picked])
                for place, part_K in zip(places, parts, strict=True):
                    found[place] = part_K
        return found

    def _scorer(self, by: By) -> tuple[Forward, AbstractContextManager[None]]:
        if by != "reference":
            return self.forward, nullcontext()
        if self._adapters is not None:
            return self.forward, self._adapters.off()
        if self._reference is not None:
            return self._reference, nullcontext()
        raise ConfigError(
            "there is no reference",
            where="TorchLearner",
            fix="build the learner with a loss whose kl_coefficient is above 0, or give reference_logprobs_T",
        )


def _load(model: str | Path | nn.Module, chat: ChatFormat) -> nn.Module:
    """Load a model, and check that it knows the chat format's ids."""
    if not isinstance(model, str | Path):
        given: Any = model
        rows = int(given.get_input_embeddings().weight.shape[0])
        if rows < chat.vocab_size:
            what, got = "the chat format has ids that the model does not know", chat.vocab_size
            raise ConfigError(what, where="TorchLearner", got=got, expected=f"at most {rows}")
        return model.eval()
    try:
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise DataMissing(
            "no model could be loaded",
            where=str(model),
            got=str(error).splitlines()[0],
            expected="a folder with config.json and weights",
        ) from error
    check_model_ids(model, chat, rows=int(loaded.get_input_embeddings().weight.shape[0]))
    evaluated: nn.Module = loaded.eval()
    return evaluated


def _compute_layers_again(model: Any) -> None:
    """Turn on gradient checkpointing, which acts in training mode alone; dropout stays off."""
    for module in model.modules():
        for name in ("p", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    # The second is the older name, about which newer versions warn.
    names = "activation_checkpointing_enable", "gradient_checkpointing_enable"
    next(getattr(model, name) for name in names if hasattr(model, name))({"use_reentrant": False})
    model.train()
