"""`TorchLearner`: a transformers model on one device, whose results do not depend on how its work is cut."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, DataCorrupt, FingerprintMismatch
from agentgym_tok.learner.batch import Batch
from agentgym_tok.learner.checkpoint import read_checkpoint, write_checkpoint
from agentgym_tok.learner.gradients import accumulate
from agentgym_tok.learner.losses import LossConfig
from agentgym_tok.learner.optimizers import make_optimizers
from agentgym_tok.learner.row_figures import mismatch_figures, row_figures
from agentgym_tok.learner.student import Student
from agentgym_tok.learner.teacher import TeacherContext, TeacherRefusal, teacher_figures
from agentgym_tok.learner.torch_config import LoraConfig, TorchConfig
from agentgym_tok.learner.trained_row import TrainedRow, distils, read_batch
from agentgym_tok.trace import Row

__all__ = ["LoraConfig", "TorchConfig", "TorchLearner"]

_LOG = logging.getLogger(__name__)


class TorchLearner:
    """Train a causal model of transformers on rows of token ids.

    Rows are laid into prefix trees without padding: what rollouts of a group, or rows of a rollout, have in common is
    computed once. A model for which this does not equal its own forward pass is computed row by row, and the log says
    why. Neither the size of passes nor the order of rows changes losses or gradients, up to rounding.

    Before the first step of an update the policy, the reference and the teacher are scored by the weights of that
    moment; where an update is a single step, the policy's scores are those of the step itself. The model is trained
    without dropout, so that the ratio to the policy before the update begins at 1.

    Args:
        model: Folder or name of a model, loaded in float32; or a model, which is trained in place in its own dtype.
        chat: Its ids must be those of the model's own tokenizer.
        loss: What is minimised; another one may be put into `loss` between updates, such as one of a schedule.
        config: How steps are taken.

    Raises:
        DataMissing: There is no model at the path.
        FingerprintMismatch: An id stands for something else in the model's tokenizer.
        ConfigError: The chat format has ids that the model does not know.
        MissingExtra: Adapters are asked for, and peft is not installed.
    """

    def __init__(
        self, model: str | Path | nn.Module, chat: ChatFormat, loss: LossConfig, config: TorchConfig | None = None
    ) -> None:
        self.loss, self.config = loss, config or TorchConfig()
        self.updates = 0
        """How many updates were taken."""
        self._steps = 0
        self._chat = chat
        self._student = Student(model, chat, self.config, referred=loss.kl_coefficient > 0)
        self._optimizer = make_optimizers(self._student.model, self._student.trained, self.config)

    @property
    def model(self) -> Any:
        """Return the model of transformers; adapters stand in it."""
        return self._student.model

    @property
    def version(self) -> str:
        """Return the label of the weights, for `Policy.update_weights`; staleness is counted by it."""
        return str(self.updates)

    @property
    def packed(self) -> bool:
        """Tell whether shared prefixes are computed once."""
        return self._student.forward.packed

    def update(self, batch: Batch) -> dict[str, float]:
        """Take one update: `epochs * minibatches` steps.

        Args:
            batch: Rows of weight 0, and such as train nothing, are in no denominator.

        Returns:
            Figures. Of the loss, see `total_loss`; where there are several steps, their mean. Of the rows, see
            `row_figures`, `mismatch_figures` and `teacher_figures`. `update/grad_norm` (before it is cut),
            `update/learning_rate`, `update/steps`, `update/skipped` (share of steps not taken because a gradient was
            not finite), `update/tokens` (of all trained rows), `update/trained_tokens`, `update/computed_tokens` (of
            the policy's forward passes, scoring included), `update/seconds` and `update/tokens_per_second`.

        Raises:
            ConfigError: Rows without advantages, a teacher or a reference meet an objective that needs them; nothing is
                to be trained; there are fewer groups than mini-batches; or a row is longer than the model's context.
            InvalidIds: Ids of a row are not the model's.
            InvalidLogprobs: A score of a trained token is not finite.
        """
        began, computed = time.perf_counter(), self._student.forward.computed_tokens
        rows = self._scored(self._read_batch(batch))
        figures = row_figures(batch.rows, rows, self._lags())
        if batch.teachers is not None:
            figures |= teacher_figures([one for one in batch.teachers if one is not None])
        steps: list[dict[str, float]] = []
        now: Sequence[Tensor] = []
        for part in self._parts(rows):
            self._optimizer.zero_grad()
            found, now = self._accumulate(part, batch)
            steps.append(found | self._step())
        self._optimizer.zero_grad()
        self.updates += 1
        # After several steps every row has its old scores, and those of the last step are no longer they.
        old = [row.scores["old"] for row in rows if "old" in row.scores]
        figures |= mismatch_figures(rows, old if len(old) == len(rows) else now) | _mean(steps)
        seconds = time.perf_counter() - began
        tokens = sum(len(row.row.ids_T) for row in rows)
        return figures | {
            "update/steps": float(len(steps)),
            "update/tokens": float(tokens),
            "update/trained_tokens": float(sum(len(row.ids_K) for row in rows)),
            "update/computed_tokens": float(self._student.forward.computed_tokens - computed),
            "update/seconds": seconds,
            "update/tokens_per_second": tokens / seconds,
        }

    def backward(self, batch: Batch) -> dict[str, float]:
        """Add the gradients of a batch to those of the model, and take no step.

        Returns:
            The figures of the loss.

        Raises:
            ConfigError, InvalidIds, InvalidLogprobs: As for `update`.
        """
        return self._accumulate(self._scored(self._read_batch(batch)), batch)[0]

    def score(self, rows: Sequence[Row], by: Literal["policy", "reference"] = "policy") -> list[NDArray[Any]]:
        """Score what rows train.

        Args:
            rows: The rows.
            by: The policy as it is now, or the model as it was at first.

        Returns:
            For each row float [T], nats, at the temperature of each token; 0 where nothing is trained.

        Raises:
            ConfigError: There is no reference.
            InvalidIds: Ids of a row are not the model's.
        """
        read = [self._read(row) for row in rows]
        found = self._student.score(read, "old" if by == "policy" else by)
        return [row.spread(scores_K) for row, scores_K in zip(read, found, strict=True)]

    def score_teachers(
        self, rows: Sequence[Row], contexts: Sequence[TeacherContext | TeacherRefusal | None]
    ) -> list[NDArray[Any] | None]:
        """Score what rows train in their teachers' contexts, by the policy as it is now.

        Args:
            rows: The rows.
            contexts: Of `teacher_contexts`, in the same order.

        Returns:
            For each row as `score`; None where it has no teacher.

        Raises:
            InvalidIds: A teacher reads other ids than those its row trains.
        """
        read = [self._read(row, context) for row, context in zip(rows, contexts, strict=True)]
        scored = self._student.filled(read, "teacher")
        return [row.spread(row.scores["teacher"]) if row.scores else None for row in scored]

    def weights(self) -> dict[str, Tensor]:
        """Return the weights for `Policy.update_weights`, adapters merged: all of them, by the model's own names.

        Those of the model itself are no copies: the next update changes them.
        """
        return self._student.weights()

    def state(self) -> dict[str, Any]:
        """Return all that the next update depends on, besides the model and the options given at first."""
        return {
            "updates": self.updates,
            "steps": self._steps,
            "weights": {name: value.detach() for name, value in self._student.trained.items()},
            "optimizer": self._optimizer.state_dict(),
            "rng": [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else ())],
            "fingerprint": self._chat.fingerprint,
            "fixed": self._student.fixed,
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit as the learner that it came from.

        Raises:
            FingerprintMismatch: It belongs to another chat format.
            DataCorrupt: It belongs to another model, reference or kind of training.
        """
        given, own = state["fingerprint"], self._chat.fingerprint
        if given != own:
            raise FingerprintMismatch(
                "the checkpoint has another chat format", where="load_state", got=given, expected=own
            )
        trained = self._student.trained
        shapes = {name: value.shape for name, value in state["weights"].items()}
        for what, is_same in (
            ("the checkpoint has other weights", shapes == {name: value.shape for name, value in trained.items()}),
            ("the checkpoint has another reference", state["fixed"] == self._student.fixed),
        ):
            if not is_same:
                fix = "build the learner from the same model and options as at first"
                raise DataCorrupt(what, where="load_state", fix=fix)
        for name, value in state["weights"].items():
            trained[name].copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
        on_cpu, *on_gpus = state["rng"]
        torch.set_rng_state(on_cpu)
        if on_gpus and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(on_gpus)
        self.updates, self._steps = state["updates"], state["steps"]

    def save(self, path: str | Path) -> None:
        """Write `state` into a file, whole or not at all."""
        write_checkpoint(path, self.state())

    def load(self, path: str | Path) -> None:
        """Go on from what `save` wrote.

        Raises:
            DataMissing: There is no such file.
            DataCorrupt: It is no checkpoint, or belongs to another model or kind of training.
            FingerprintMismatch: It belongs to another chat format.
        """
        self.load_state(read_checkpoint(path))

    def _read(self, row: Row, context: object = None) -> TrainedRow:
        return TrainedRow.of(row, context, vocab_size=self._chat.vocab_size, limit=self._student.limit)

    def _read_batch(self, batch: Batch) -> list[TrainedRow]:
        device = self._student.forward.device
        return read_batch(batch, self.loss, vocab_size=self._chat.vocab_size, limit=self._student.limit, device=device)

    def _accumulate(self, rows: Sequence[TrainedRow], batch: Batch) -> tuple[dict[str, float], Sequence[Tensor]]:
        # Of `opsd_full` nobody scores what was sampled, unless it was given.
        is_scored = distils(self.loss) and self.loss.distillation != "opsd_full"
        taught = is_scored or batch.teacher_logprobs_T is not None
        found, now = accumulate(self._student.forward, rows, self.loss, self.config.micro_tokens, taught=taught)
        return {name: float(value) for name, value in found.items()}, now

    def _scored(self, rows: Sequence[TrainedRow]) -> list[TrainedRow]:
        """Score what the objective needs and nobody gave, before the first step."""
        scored = list(rows)
        if self.loss.kl_coefficient:
            scored = self._student.filled(scored, "reference")
        if self.config.epochs * self.config.minibatches > 1:
            scored = self._student.filled(scored, "old")
        if self.loss.distillation == "opsd_full":
            return scored  # whole distributions are too many to keep: each pass computes its teacher's
        return self._student.filled(scored, "teacher")

    def _parts(self, rows: Sequence[TrainedRow]) -> Iterator[Sequence[TrainedRow]]:
        """Deal whole groups out to the steps of an update, in an order drawn anew for each epoch."""
        count = self.config.minibatches
        groups = sorted({row.row.group_id for row in rows})
        if len(groups) < count:
            raise ConfigError(
                "there are fewer groups than mini-batches", where="TorchLearner.update", got=len(groups), expected=count
            )
        for epoch in range(self.config.epochs):
            order = np.random.default_rng([self.config.seed, self.updates, epoch]).permutation(len(groups))
            for part in np.array_split(order, count):
                names = {groups[place] for place in part}
                yield [row for row in rows if row.row.group_id in names]

    def _step(self) -> dict[str, float]:
        """Cut the gradient, and take a step; one that is not finite is not taken, and said."""
        rate = self.config.rate(self._steps)
        norm = torch.nn.utils.clip_grad_norm_(self._student.trained.values(), self.config.max_grad_norm)
        is_finite = bool(norm.isfinite())
        if is_finite:
            self._optimizer.step(rate)
        else:
            _LOG.warning("step %d is skipped: its gradient has length %s", self._steps, float(norm))
        self._steps += 1
        return {
            "update/grad_norm": float(norm),
            "update/learning_rate": rate,
            "update/skipped": float(not is_finite),
        }

    def _lags(self) -> dict[str, int]:
        return {str(self.updates - lag): lag for lag in range(self.updates + 1)}


def _mean(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Join the figures of an update's steps."""
    joined = {name: [step[name] for step in steps] for name in steps[0]}
    return {
        name: max(values) if name.endswith("_max") else sum(values) / len(values) for name, values in joined.items()
    }
