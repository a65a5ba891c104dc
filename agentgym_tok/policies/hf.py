"""`hf:PATH`: a transformers model in this process (extra `torch`)."""

import inspect
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import (
    AgentGymTokError,
    DataMissing,
    MissingExtra,
    PolicyError,
    TransientPolicyError,
)
from agentgym_tok.policies.base import BasePolicy, Listen
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Completion, Request, ScoreRequest, Scores

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtra(
        "transformers models need torch", where="policy hf:PATH", fix='pip install "agentgym-tok[torch]"'
    ) from error

from agentgym_tok.policies import kv_cache, weights
from agentgym_tok.policies.hf_turn import DrawnTurn, check_logits, processed
from agentgym_tok.policies.model_ids import check_model_ids

__all__ = ["HFPolicy"]

_LOG = logging.getLogger(__name__)

_CHUNK = 256
"""Most ids of one scoring pass; it bounds the logits, which are this many times the vocabulary."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Hold rows that decode together: the ids of the next pass, the mask up to their end, and all before them.

    `update` counts the updates of the weights that computed the cache.
    """

    rows: Sequence[DrawnTurn]
    ids_NT: torch.Tensor
    mask_NT: torch.Tensor
    cache: Any
    update: int


class HFPolicy(BasePolicy):
    """Sample from a causal language model of transformers, a batch at a time.

    Prompts are padded on the left, so that every row decodes from its last position. Each request draws from a
    generator of its own seed, so its ids do not depend on which requests share the batch, up to the model's own
    floating-point differences between batch shapes; for that reason it does not declare itself deterministic.

    The keys and values of each conversation (`Request.conversation`) are kept, so that its next turn computes its new
    ids only; where a context departs from what is kept, the common prefix serves. Models whose caches cannot be cut
    (`kv_cache`) compute every context whole. New weights drop all that is kept.

    One thread may call `update_weights` while another one generates: the update lands between two tokens, and what was
    computed for the turns at hand is computed again. So each token is drawn from one version's distribution after its
    whole context, and `Completion.weight_versions` says which.

    Log-probabilities are those of the sampled ids, float32, in nats. `raw` where the model's own distribution was drawn
    from (temperature 1, no truncation) or the likeliest token was taken (temperature 0); otherwise `processed`: of the
    distribution after temperature, top-k and top-p. The model's own `generation_config` is not read.

    Args:
        path: Folder or name of the model.
        chat: Its ids must be those of the model's own tokenizer. Where a folder holds none, the model must have just as
            many.
        device: Where the model lives, such as `"cpu"` or `"cuda"`; None takes a GPU where there is one.
        batch_size: Most prompts of one forward pass.
        version: The weights' label on every token.
        cache_bytes: Most bytes of keys and values kept between turns. Raise it where the conversations that run at once
            do not fit (2 * layers * KV heads * head size * bytes of a value, for each id): one that was dropped pays
            its whole context again. 0 keeps none.

    Raises:
        DataMissing: There is no model at the path.
        FingerprintMismatch: An id stands for something else in the model's tokenizer, or that cannot be read.
        ConfigError: The chat format has ids that the model does not know, or, where no tokenizer lies beside the model,
            not as many.
    """

    listens = True
    computed_tokens = 0
    """Places of all forward passes so far, padding and scoring included: what a cache saves shows here."""

    def __init__(
        self,
        path: str | Path,
        chat: ChatFormat,
        *,
        device: str | None = None,
        batch_size: PositiveInt = 32,
        version: str = "0",
        cache_bytes: NonNegativeInt = 4 * 2**30,
    ) -> None:
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(path)
        except (OSError, ValueError) as error:
            raise DataMissing(
                "no model could be loaded",
                where=str(path),
                got=str(error).splitlines()[0],
                expected="a folder with config.json and weights",
            ) from error
        self._model: Any = model.eval().to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._chat = chat
        self._batch_size = batch_size
        self._version = version
        self.name = f"hf:{Path(path).name}"
        self.fingerprint = chat.fingerprint
        self._limit = self.context_limit = int(getattr(model.config, "max_position_embeddings", None) or 2**31)
        # transformers 5.2x renames the argument, and warns about the old name.
        forward = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in forward else "past_key_values"
        self._cuttable = kv_cache.can_be_cut(model.config)
        self._caches = kv_cache.ConversationCaches(cache_bytes if self._cuttable else 0)
        self._updates = 0
        self._turnstile, self._weights = threading.Lock(), threading.Lock()
        check_model_ids(path, chat, rows=int(model.get_input_embeddings().weight.shape[0]))

    def generate(self, requests: Sequence[Request], listen: Listen | None = None) -> list[Completion | Exception]:
        """Answer a batch, in order.

        Args:
            requests: What is asked.
            listen: Is told of each token as it is drawn, and breaks turns off.

        Returns:
            The turns. Where the logits of one are no numbers, or its pass fails alone, a `PolicyError` stands in its
            place; it is `transient` where there was no memory.
        """
        answers: list[Completion | Exception] = []
        for start in range(0, len(requests), self._batch_size):
            answers += self._batch(requests[start : start + self._batch_size], listen)
        return answers

    def _batch(self, requests: Sequence[Request], listen: Listen | None) -> list[Completion | Exception]:
        rows = [DrawnTurn(request, self._chat, self._limit - len(request.ids_T), listen) for request in requests]
        try:
            self._decode([row for row in rows if row.open])
        except RuntimeError as error:
            failed = error.with_traceback(None)
        else:
            return [row.answer(self.name) for row in rows]
        # Most often out of memory: without the kept caches, or by halves, the batch may fit, and draws the same. Here,
        # since an error that is being handled, like one that keeps its traceback, holds the memory of what failed.
        with self._weights:
            dropped = self._caches.clear()
        if dropped:
            return self._batch(requests, listen)
        if len(requests) == 1:
            return [_failure(failed, self.name)]
        half = len(requests) // 2
        return [*self._batch(requests[:half], listen), *self._batch(requests[half:], listen)]

    @torch.inference_mode()
    def _decode(self, rows: Sequence[DrawnTurn]) -> None:
        batch: _Batch | None = None
        while any(row.open for row in rows):
            with self._turnstile:
                pass  # an update that waits goes first
            with self._weights:
                if batch is None or batch.update != self._updates:
                    batch = self._prepare([row for row in rows if row.open])
                length = batch.ids_NT.shape[1]
                positions_NT = (batch.mask_NT.cumsum(-1) - 1).clamp(min=0)[:, -length:]
                logits_NV = self._logits(batch.ids_NT, batch.mask_NT, positions_NT, batch.cache, keep=1)[:, -1]
                version = self._version
            drawn = [row.draw(logits_NV[index], version) for index, row in enumerate(batch.rows)]
            # Finished rows go on with any id, which the mask hides: nothing that they compute is read or kept.
            batch.ids_NT = torch.tensor(drawn, device=batch.ids_NT.device)[:, None]
            alive_N = torch.tensor([row.open for row in batch.rows], dtype=torch.long, device=batch.ids_NT.device)
            batch.mask_NT = torch.cat([batch.mask_NT, alive_N[:, None]], dim=1)
        if batch is not None:
            self._keep(batch)

    def _prepare(self, rows: Sequence[DrawnTurn]) -> _Batch:
        """Lay out each row as what is kept of its context, and then what is not, both padded on the left."""
        contexts = [row.context() for row in rows]
        kept = [self._caches.find(row.request.conversation, ids_T) for row, ids_T in zip(rows, contexts, strict=True)]
        lengths = [len(ids_T) - kv_cache.length_of(prefix) for ids_T, prefix in zip(contexts, kept, strict=True)]
        usual = max(int(np.median(lengths)), 1)
        for index, length in enumerate(lengths):
            # Every row is padded to the longest: one that starts while others go on would cost as much for each.
            if self._cuttable and length > 2 * usual:
                kept[index] = self._grow(kept[index], contexts[index][:-usual])
        cache, ids_NT, mask_NT = kv_cache.lay_out(self._model, kept, contexts)
        return _Batch(rows, ids_NT, mask_NT, cache, self._updates)

    def _grow(self, kept: kv_cache.Prefix | None, ids_T: Ids) -> kv_cache.Prefix:
        """Compute the rest of a prefix alone."""
        cache, ids_NT, mask_NT = kv_cache.lay_out(self._model, [kept], [ids_T])
        positions_NT = torch.arange(kv_cache.length_of(kept), len(ids_T), device=ids_NT.device)[None]
        self._logits(ids_NT, mask_NT, positions_NT, cache, keep=1)
        return kv_cache.Prefix(ids_T, kv_cache.split(cache, 0, mask_NT[0].bool()))

    def _keep(self, batch: _Batch) -> None:
        """Keep what was computed for each conversation: its context and its turn, but for the last id drawn."""
        with self._weights:
            if batch.update != self._updates:
                return
            for index, row in enumerate(batch.rows):
                if row.request.conversation and self._caches.limit and not row.failed:
                    mask_T = batch.mask_NT[index, :-1].bool()
                    layers = kv_cache.split(batch.cache, index, mask_T)
                    prefix = kv_cache.Prefix(row.context()[: int(mask_T.sum())], layers)
                    self._caches.keep(row.request.conversation, prefix)

    def update_weights(self, state: "Mapping[str, torch.Tensor] | weights.WeightDelta", version: str) -> None:
        """Put new weights in the place of the old ones, and drop every kept cache; tokens drawn from now on say so.

        Args:
            state: A state dict with all tensors of the model, or what `weights.delta` found against the weights here.
            version: Their label.

        Raises:
            PolicyError: They are not this model's, or a change does not lead to the weights that were sent; then the
                old ones stay.
        """
        with self._turnstile, self._weights:
            own = self._model.state_dict()
            if isinstance(state, weights.WeightDelta):
                weights.apply(own, state)
            else:
                weights.copy_into(own, state)
            self._version = version
            self._updates += 1
            _LOG.info("%s has weights %s: the caches of %d conversations go", self.name, version, len(self._caches))
            self._caches.clear()

    def _logits(
        self, ids_NT: torch.Tensor, mask_NT: torch.Tensor, positions_NT: torch.Tensor, cache: Any, *, keep: Any
    ) -> torch.Tensor:
        """Return float32 logits over the chat format's ids; `keep`: the last so many places, or their indices."""
        self.computed_tokens += ids_NT.numel()
        output = self._model(
            input_ids=ids_NT,
            attention_mask=mask_NT,
            position_ids=positions_NT,
            **{self._cache_name: cache},
            use_cache=True,
            logits_to_keep=keep,
        )
        logits: torch.Tensor = output.logits.float()[..., : self._chat.vocab_size]
        return logits

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score each sequence in one pass over its ids, chunk by chunk through a KV cache.

        Raises:
            PolicyError: A sequence is longer than the model's context, or a logit is not a number.
        """
        scores: list[Scores] = []
        for request in requests:
            with self._turnstile:
                pass
            with self._weights:
                scores.append(self._score(request))
        return scores

    @torch.inference_mode()
    def _score(self, request: ScoreRequest) -> Scores:
        length = max((end for _, end, _ in request.parts), default=0)
        if length > self._limit:
            raise PolicyError(
                "the sequence is longer than the model's context",
                where=self.name,
                got=f"{length} ids",
                expected=f"at most {self._limit}",
                fix="score with a model that has room for what was sampled",
            )
        ids_T = torch.from_numpy(request.ids_T[:length].astype(np.int64)).to(self._model.device)
        cache = transformers.DynamicCache(config=self._model.config)
        raw, drawn = [torch.zeros(0)], [torch.zeros(0)]
        for start in range(0, length - 1, _CHUNK):
            end = min(start + _CHUNK, length - 1)  # the last id is scored, and predicts nothing that is asked for
            # The id at place p is predicted at p - 1.
            parts = [(max(a - 1, start), min(b - 1, end), sampling) for a, b, sampling in request.parts]
            parts = [part for part in parts if part[0] < part[1]]
            places_S = torch.cat([torch.arange(a, b) for a, b, _ in parts] or [torch.tensor([start])]).to(ids_T.device)
            positions_NT = torch.arange(start, end, device=ids_T.device)[None]
            mask_NT = torch.ones((1, end), dtype=torch.long, device=ids_T.device)
            logits_SV = self._logits(ids_T[None, start:end], mask_NT, positions_NT, cache, keep=places_S - start)[0]
            check_logits(logits_SV, f"ids {start} to {end}")
            done = 0
            for a, b, sampling in parts:
                logits_PV, targets_P = logits_SV[done : done + b - a], ids_T[a + 1 : b + 1, None]
                raw.append(torch.log_softmax(logits_PV, -1).gather(-1, targets_P)[:, 0].cpu())
                drawn.append(processed(logits_PV, sampling).gather(-1, targets_P)[:, 0].cpu())
                done += b - a
        return Scores(_nats(raw), _nats(drawn), self._version)


def _failure(error: RuntimeError, where: str) -> Exception:
    """Return what stands in the place of a turn; one that found no memory may find some when others are done."""
    if isinstance(error, AgentGymTokError):
        return error
    short = any(words in str(error) for words in ("out of memory", "allocate memory"))
    kind = TransientPolicyError if short else PolicyError
    return kind("the model failed", where=where, got=f"{type(error).__name__}: {error}")


def _nats(parts: Sequence[torch.Tensor]) -> NDArray[np.float32]:
    """Join log-probabilities; rounding puts those of certain ids above zero."""
    nats_S: NDArray[np.float32] = torch.cat(list(parts)).clamp(max=0).numpy()
    nats_S.flags.writeable = False
    return nats_S
