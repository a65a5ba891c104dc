"""The forward pass of a learner: what a model says at the places that are asked for, computed once where it is shared.

Two ways lead there. `packed`: sequences as one prefix tree, and the model's head at the asked places alone. `plain`:
the model's own forward pass, one sequence after the other. The first is taken where it is shown to equal the second.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agentgym_tok.learner.packing import Asked, pack
from agentgym_tok.learner.tree_attention import NAME, Tree

__all__ = ["Forward"]

_LOG = logging.getLogger(__name__)


class Forward:
    """Run a causal model of transformers on sequences.

    Args:
        model: The model; its attention is switched to `tree_attention`, which elsewhere is `sdpa`, where it is packed.
        vocab_size: Ids of the chat format: a model may have more, which nobody can draw.
        autocast: Compute in bfloat16 where torch deems it safe.
        packed: False computes row by row.
    """

    def __init__(self, model: nn.Module, *, vocab_size: int, autocast: bool = False, packed: bool = True) -> None:
        self.model: Any = model
        self.vocab_size = vocab_size
        self._autocast = autocast
        self.computed_tokens = 0
        """Tokens of all forward passes so far."""
        self.packed = False
        if packed:
            reason = self._refusal()
            self.packed = reason is None
            if reason is not None:
                _LOG.warning("%s is computed row by row: %s", type(model).__name__, reason)

    @property
    def device(self) -> torch.device:
        """Return where the model lives."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def features(self, sequences: Sequence[Asked]) -> Tensor:
        """Return what `logits` needs at each asked place, float [K, F], sequence behind sequence."""
        with self._precision():
            return self._packed(sequences) if self.packed else self._plain(sequences)

    def logits(self, features_K_F: Tensor) -> Tensor:
        """Return the logits over the chat format's ids, float [K, V]."""
        if self.packed:
            with self._precision():
                features_K_F = self.model.get_output_embeddings()(features_K_F)
        return features_K_F[:, : self.vocab_size]

    def _packed(self, sequences: Sequence[Asked]) -> Tensor:
        packed = pack(sequences)
        self.computed_tokens += len(packed.ids_P)
        hidden: Tensor = self.model.get_decoder()(
            input_ids=self._tensor(packed.ids_P)[None],
            position_ids=self._tensor(packed.depth_P)[None],
            # Masks of four dimensions are taken as they are: none is built, and `tree_attention` looks at none.
            attention_mask=torch.ones((1, 1, 1, 1), dtype=torch.bool, device=self.device),
            use_cache=False,
            tree=Tree(packed.segments),
        ).last_hidden_state[0]
        return hidden[self._tensor(packed.places_K)]

    def _plain(self, sequences: Sequence[Asked]) -> Tensor:
        found: list[Tensor] = []
        for one in sequences:
            if not len(one.predictors_K):
                continue
            self.computed_tokens += len(one.ids_T)
            ids_T, asked_K = self._tensor(one.ids_T.astype(np.int64)), self._tensor(one.predictors_K)
            output = self.model(input_ids=ids_T[None], use_cache=False, logits_to_keep=asked_K)
            found.append(output.logits[0])
        return torch.cat(found)

    def _precision(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._autocast)

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _refusal(self) -> str | None:
        """Switch to `tree_attention`, and say why it cannot be used; None where it can."""
        model = self.model
        # Such a model tells its attention all that it must know: windows come as numbers, and not in a mask alone.
        if not (getattr(model, "_supports_attention_backend", False) and getattr(model, "_supports_flash_attn", False)):
            return "its attention cannot be replaced"
        own = model.config._attn_implementation
        try:
            with torch.no_grad():
                rows = _check_rows(self.vocab_size)
                plain_K_V = self._plain(rows)[:, : self.vocab_size].float()
                model.set_attn_implementation(NAME)
                packed_K_V = model.get_output_embeddings()(self._packed(rows))[:, : self.vocab_size].float()
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
        else:
            width = torch.finfo(next(model.parameters()).dtype).bits
            gap, spread = (packed_K_V - plain_K_V).abs().max(), plain_K_V.std()
            if bool(gap <= (1e-3 if width >= 32 else 0.05) * spread):
                return None
            reason = f"packed logits lie {float(gap):.3g} from plain ones, which spread over {float(spread):.3g}"
        model.set_attn_implementation(own)
        return reason


def _check_rows(vocab_size: int) -> list[Asked]:
    """Return short sequences that branch early, late and not at all, one of which begins another."""
    draw = np.random.default_rng(0)
    ids = draw.integers(vocab_size, size=(4, 12)).astype(np.int32)
    stem = ids[0]
    whole = [stem, np.concatenate((stem[:7], ids[1])), np.concatenate((stem[:9], ids[2])), stem[:5], ids[3]]
    return [Asked(ids_T, np.arange(len(ids_T))) for ids_T in whole]
