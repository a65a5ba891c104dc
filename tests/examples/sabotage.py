"""Learners that are broken in ways that no figure of an update shows."""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from agentgym_tok.learner import Batch
from agentgym_tok.learner.torch_learner import TorchLearner
from agentgym_tok.trace import Row

__all__ = ["ShiftedMasks", "ShuffledAdvantages"]


class ShuffledAdvantages(TorchLearner):
    """Give each rollout the advantage of another one."""

    def update(self, batch: Batch) -> dict[str, float]:
        """Take an update with advantages that say nothing."""
        rows = list(batch.rows)
        advantages_N = [_advantage(row) for row in rows]
        order_N = np.random.default_rng(self.updates).permutation(len(rows))
        wrong = [
            replace(row, advantage_T=np.where(row.mask_T, advantages_N[other], 0).astype(np.float32))
            for row, other in zip(rows, order_N, strict=True)
        ]
        return super().update(replace(batch, rows=wrong))


class ShiftedMasks(TorchLearner):
    """Train what stands some tokens before what was sampled: mostly the world's words."""

    by: ClassVar[int] = 12

    def update(self, batch: Batch) -> dict[str, float]:
        """Take an update with masks that are off."""
        return super().update(replace(batch, rows=[self._shifted(row) for row in batch.rows]))

    def _shifted(self, row: Row) -> Row:
        axes = ("mask_T", "logprobs_T", "version_T", "turn_T", "temperature_T", "advantage_T")
        return replace(row, **{name: np.roll(getattr(row, name), -self.by) for name in axes})


def _advantage(row: Row) -> float:
    assert row.advantage_T is not None
    return float(row.advantage_T[row.mask_T][0]) if row.mask_T.any() else 0.0
