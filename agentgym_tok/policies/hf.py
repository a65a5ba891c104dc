"""`hf:PATH`: a transformers model in this process (extra `torch`)."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, DataMissing, MissingExtra, PolicyError
from agentgym_tok.policies.base import BasePolicy
from agentgym_tok.types import Completion, FinishReason, LogprobKind, Request, Sampling

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtra(
        "transformers models need torch", where="policy hf:PATH", fix='pip install "agentgym-tok[torch]"'
    ) from error

__all__ = ["HFPolicy"]


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
        chat: Must be of the same tokenizer as the model.
        device: Where the model lives, such as `"cpu"` or `"cuda"`; None takes a GPU where there is one.
        batch_size: Most prompts of one forward pass.
        version: The weights' label on every token.

    Raises:
        DataMissing: There is no model at the path.
        ConfigError: The model has no embedding for some id of the chat format.
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
        self._limit = int(getattr(model.config, "max_position_embeddings", None) or 2**31)
        # transformers 5.2x renames the argument, and warns about the old name.
        forward = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in forward else "past_key_values"
        rows = int(model.get_input_embeddings().weight.shape[0])
        if rows < chat.vocab_size:
            raise ConfigError(
                "the chat format has ids that the model does not know",
                where=str(path),
                got=f"{chat.vocab_size} ids in {chat.reference!r}",
                expected=f"at most {rows}",
                fix="use ChatFormat.from_pretrained on the model's own folder",
            )

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer a batch, in order.

        Raises:
            PolicyError: A logit is not a number.
        """
        completions: list[Completion] = []
        for start in range(0, len(requests), self._batch_size):
            completions += self._batch(requests[start : start + self._batch_size])
        return completions

    @torch.inference_mode()
    def _batch(self, requests: Sequence[Request]) -> list[Completion]:
        rows = [_Row(request, self._limit - len(request.ids_T)) for request in requests]
        self._decode([row for row in rows if row.open])
        return [row.completion(self.name, self._version) for row in rows]

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
            output = self._model(
                input_ids=ids_NT,
                attention_mask=mask_NT,
                position_ids=positions_NT,
                **{self._cache_name: cache},
                use_cache=True,
                logits_to_keep=1,
            )
            logits_NV = output.logits[:, -1].float()[:, : self._chat.vocab_size]
            # Finished rows go on with any id: nothing they compute is read any more.
            drawn = [row.draw(logits_NV[index], self._chat.stop_ids) for index, row in enumerate(rows)]
            ids_NT = torch.tensor(drawn, dtype=torch.long, device=device)[:, None]
            mask_NT = torch.cat([mask_NT, torch.ones_like(ids_NT)], dim=1)


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
        self.open = self._room > 0

    def draw(self, logits_V: torch.Tensor, stop_ids: Sequence[int]) -> int:
        """Draw the next id, and close the turn at a stop token or its limit."""
        if not self.open:
            return 0
        if not bool(torch.isfinite(logits_V).all()):
            raise PolicyError("the model's logits are no numbers", where=f"token {len(self._ids)} of a turn")
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

    def completion(self, engine: str, version: str) -> Completion:
        """Return the turn."""
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
    return sampling.temperature == 0 or (sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0)


def processed(logits_V: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return the log-probabilities that a token is drawn from.

    Args:
        logits_V: float32 [V].
        sampling: Temperature first, then top-k, then top-p over what is left, as engines do; 0 leaves the model's own.

    Returns:
        float32 [V], nats; -inf where a token cannot be drawn.
    """
    if sampling.temperature == 0:
        return torch.log_softmax(logits_V, -1)
    scaled_V = logits_V / sampling.temperature
    if 0 < sampling.top_k < len(scaled_V):
        floor = torch.topk(scaled_V, sampling.top_k).values[-1]
        scaled_V = scaled_V.masked_fill(scaled_V < floor, -torch.inf)
    if sampling.top_p < 1:
        ordered_V, places_V = torch.sort(scaled_V, descending=True)
        before_V = torch.softmax(ordered_V, -1).cumsum(-1) - torch.softmax(ordered_V, -1)
        dropped_V = torch.zeros_like(scaled_V, dtype=torch.bool)
        dropped_V[places_V[before_V >= sampling.top_p]] = True
        scaled_V = scaled_V.masked_fill(dropped_V, -torch.inf)
    return torch.log_softmax(scaled_V, -1)
