"""`hf:PATH`: a transformers model in this process (extra `torch`)."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.errors import ConfigError, DataMissing, FingerprintMismatch, MissingExtra, PolicyError
from agentgym_tok.policies.base import BasePolicy, draws_untouched
from agentgym_tok.types import Completion, FinishReason, LogprobKind, Request, Sampling, ScoreRequest, Scores

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtra(
        "transformers models need torch", where="policy hf:PATH", fix='pip install "agentgym-tok[torch]"'
    ) from error

__all__ = ["HFPolicy"]

_CHUNK = 256
"""Most ids of one scoring pass; it bounds the logits, which are this many times the vocabulary."""

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
)
"""A folder with none of these has no tokenizer; transformers would make an empty one up."""


class HFPolicy(BasePolicy):
    """Sample from a causal language model of transformers, a batch at a time.

    Prompts are padded on the left, so that every row decodes from its last position. Each request draws from a
    generator of its own seed, so its ids do not depend on which requests share the batch, up to the model's own
    floating-point differences between batch shapes; for that reason it does not declare itself deterministic.

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

    Raises:
        DataMissing: There is no model at the path.
        FingerprintMismatch: An id stands for something else in the model's tokenizer, or that cannot be read.
        ConfigError: The chat format has ids that the model does not know, or, where no tokenizer lies beside the model,
            not as many.
    """

    def __init__(
        self,
        path: str | Path,
        chat: ChatFormat,
        *,
        device: str | None = None,
        batch_size: int = 32,
        version: str = "0",
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
        self._limit = int(getattr(model.config, "max_position_embeddings", None) or 2**31)
        # transformers 5.2x renames the argument, and warns about the old name.
        forward = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in forward else "past_key_values"
        _check_ids(path, chat, rows=int(model.get_input_embeddings().weight.shape[0]))

    def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """Answer a batch, in order; where the logits of one are no numbers, a `PolicyError` stands in its place."""
        answers: list[Completion | Exception] = []
        for start in range(0, len(requests), self._batch_size):
            answers += self._batch(requests[start : start + self._batch_size])
        return answers

    def _batch(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        rows = [_Row(request, self._limit - len(request.ids_T)) for request in requests]
        try:
            self._decode([row for row in rows if row.open])
        except RuntimeError as error:
            if len(requests) == 1:
                return [error.with_traceback(None)]
        else:
            return [row.answer(self.name, self._version) for row in rows]
        # Most often out of memory: halves of the batch may fit, and draw the same. Here, since an error that is being
        # handled, like one that keeps its traceback, holds the memory of what failed.
        half = len(requests) // 2
        return [*self._batch(requests[:half]), *self._batch(requests[half:])]

    @torch.inference_mode()
    def _decode(self, rows: Sequence["_Row"]) -> None:
        if not rows:
            return  # no prompt leaves room for a token
        requests = [row.request for row in rows]
        device = self._model.device
        longest = max(len(request.ids_T) for request in requests)
        ids_NT = torch.zeros((len(rows), longest), dtype=torch.long, device=device)
        mask_NT = torch.zeros_like(ids_NT)
        for index, request in enumerate(requests):
            ids_NT[index, longest - len(request.ids_T) :] = torch.from_numpy(request.ids_T.astype(np.int64))
            mask_NT[index, longest - len(request.ids_T) :] = 1
        cache = transformers.DynamicCache(config=self._model.config)
        while any(row.open for row in rows):
            positions_NT = (mask_NT.cumsum(-1) - 1).clamp(min=0)[:, -ids_NT.shape[1] :]
            logits_NV = self._logits(ids_NT, mask_NT, positions_NT, cache, keep=1)[:, -1]
            # Finished rows go on with any id: nothing they compute is read any more.
            drawn = [row.draw(logits_NV[index], self._chat.stop_ids) for index, row in enumerate(rows)]
            ids_NT = torch.tensor(drawn, dtype=torch.long, device=device)[:, None]
            mask_NT = torch.cat([mask_NT, torch.ones_like(ids_NT)], dim=1)

    def _logits(
        self, ids_NT: torch.Tensor, mask_NT: torch.Tensor, positions_NT: torch.Tensor, cache: Any, *, keep: Any
    ) -> torch.Tensor:
        """Return float32 logits over the chat format's ids; `keep`: the last so many places, or their indices."""
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
        return [self._score(request) for request in requests]

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
            _check(logits_SV, f"ids {start} to {end}")
            done = 0
            for a, b, sampling in parts:
                logits_PV, targets_P = logits_SV[done : done + b - a], ids_T[a + 1 : b + 1, None]
                raw.append(torch.log_softmax(logits_PV, -1).gather(-1, targets_P)[:, 0].cpu())
                drawn.append(processed(logits_PV, sampling).gather(-1, targets_P)[:, 0].cpu())
                done += b - a
        return Scores(_nats(raw), _nats(drawn), self._version)


def _check_ids(path: str | Path, chat: ChatFormat, *, rows: int) -> None:
    """Refuse a chat format whose ids mean something else to the model, whose embedding has so many rows."""
    folder, fix = Path(path), "use ChatFormat.from_pretrained on the model's own folder"
    alone = folder.is_dir() and not any((folder / name).is_file() for name in _TOKENIZER_FILES)
    given = f"{chat.vocab_size} ids in {chat.reference!r}"
    if rows < chat.vocab_size:
        what = "the chat format has ids that the model does not know"
        raise ConfigError(what, where=str(path), got=given, expected=f"at most {rows}", fix=fix)
    if alone and rows > chat.vocab_size:
        what = "the model has more ids than the chat format, and no tokenizer that says which they are"
        raise ConfigError(what, where=str(path), got=given, expected=rows, fix="put the tokenizer beside the model")
    if alone:
        return
    try:
        own = Tokenizer(transformers.AutoTokenizer.from_pretrained(path).backend_tokenizer)
    except Exception as error:  # broken files, and tokenizers that are not fast, come as errors of many kinds
        got = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise FingerprintMismatch(
            "the model's tokenizer cannot be read", where=str(path), got=got, expected=repr(chat), fix=fix
        ) from error
    # What every id stands for, and not the rules that cut a text: transformers rewrites those for some architectures.
    same = own.vocab_size == chat.vocab_size and own.control_ids == chat.control_ids
    if not same or own.token_bytes != chat.token_bytes(np.arange(chat.vocab_size, dtype=np.int32)):
        what, expected = "the chat format has another vocabulary than the model", f"the model's {own.vocab_size} ids"
        raise FingerprintMismatch(what, where=str(path), got=given, expected=expected, fix=fix)


def _nats(parts: Sequence[torch.Tensor]) -> NDArray[np.float32]:
    """Join log-probabilities; rounding puts those of certain ids above zero."""
    nats_S: NDArray[np.float32] = torch.cat(list(parts)).clamp(max=0).numpy()
    nats_S.flags.writeable = False
    return nats_S


def _check(logits: torch.Tensor, where: str) -> None:
    if not bool(torch.isfinite(logits).all()):
        raise PolicyError("the model's logits are no numbers", where=where)


class _Row:
    """Collect the turn of one request."""

    def __init__(self, request: Request, room: int) -> None:
        self.request = request
        self._sampling = request.sampling
        self._generator = torch.Generator().manual_seed(request.seed)
        self._room = min(request.sampling.max_tokens, room)
        self._finish: FinishReason = "length" if self._room == request.sampling.max_tokens else "truncated"
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._error: PolicyError | None = None
        self.open = self._room > 0

    def draw(self, logits_V: torch.Tensor, stop_ids: Sequence[int]) -> int:
        """Draw the next id, and close the turn at a stop token or its limit."""
        if not self.open:
            return 0
        try:
            _check(logits_V, f"token {len(self._ids)} of a turn")
        except PolicyError as error:
            self.open, self._error = False, error
            return 0
        logprobs_V = processed(logits_V.cpu(), self._sampling)
        if self._sampling.temperature == 0:
            index = int(logprobs_V.argmax())
        else:
            index = int(torch.multinomial(logprobs_V.exp(), 1, generator=self._generator))
        self._ids.append(index)
        self._logprobs.append(min(0.0, float(logprobs_V[index])))
        if index in stop_ids:
            self.open, self._finish = False, "stop"
        elif len(self._ids) == self._room:
            self.open = False
        return index

    def answer(self, engine: str, version: str) -> Completion | Exception:
        """Return the turn, or why there is none."""
        if self._error is not None:
            return self._error
        ids_T = np.array(self._ids, dtype=np.int32)
        kind: LogprobKind = "raw" if _is_raw(self._sampling) else "processed"
        return Completion(
            ids_T,
            np.array(self._logprobs, dtype=np.float32),
            finish_reason=self._finish,
            weight_versions=((version, 0, len(ids_T)),) if len(ids_T) else (),
            logprobs=kind,
            engine=engine,
            sampling=self._sampling,
        )


def _is_raw(sampling: Sampling) -> bool:
    return sampling.temperature == 0 or draws_untouched(sampling)


def processed(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return the log-probabilities that a token is drawn from.

    Args:
        logits: float32 [..., V].
        sampling: Temperature first, then top-k, then top-p over what is left, as engines do; 0 leaves the model's own.

    Returns:
        float32 [..., V], nats; -inf where a token cannot be drawn.
    """
    if sampling.temperature == 0:
        return torch.log_softmax(logits, -1)
    scaled = logits / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        floor = torch.topk(scaled, sampling.top_k).values[..., -1:]
        scaled = scaled.masked_fill(scaled < floor, -torch.inf)
    if sampling.top_p < 1:
        ordered, places = torch.sort(scaled, descending=True)
        before = torch.softmax(ordered, -1).cumsum(-1) - torch.softmax(ordered, -1)
        dropped = torch.zeros_like(scaled, dtype=torch.bool).scatter(-1, places, before >= sampling.top_p)
        scaled = scaled.masked_fill(dropped, -torch.inf)
    return torch.log_softmax(scaled, -1)
