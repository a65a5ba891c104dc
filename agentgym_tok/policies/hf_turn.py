"""The turn of one request: how its tokens are drawn, and whose they are."""

import numpy as np
import torch

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.stops import StopWatch
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.base import Listen, draws_untouched
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Completion, FinishReason, LogprobKind, Request, Sampling

__all__ = ["DrawnTurn", "check_logits", "processed"]


class DrawnTurn:
    """Collect the turn of one request.

    Args:
        request: What was asked.
        chat: Knows where turns end.
        room: How many ids the model's context has left.
        listen: Is told of each token.
    """

    def __init__(self, request: Request, chat: ChatFormat, room: int, listen: Listen | None = None) -> None:
        self.request = request
        self._listen = listen
        self._stop_ids = chat.stop_ids
        self._watch = StopWatch(chat, request.sampling.stop)
        self._sampling = request.sampling
        self._generator = torch.Generator().manual_seed(request.seed)
        self._room = min(request.sampling.max_tokens, room)
        self._finish: FinishReason = "length" if self._room == request.sampling.max_tokens else "truncated"
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._versions: list[tuple[str, int, int]] = []
        self._error: PolicyError | None = None
        self.open = self._room > 0

    @property
    def failed(self) -> bool:
        """Whether there is no turn."""
        return self._error is not None

    def context(self) -> Ids:
        """Return the context and the turn so far."""
        return np.concatenate([self.request.ids_T, np.array(self._ids, dtype=np.int32)])

    def draw(self, logits_V: torch.Tensor, version: str) -> int:
        """Draw the next id, and close the turn at a stop token, a stop string or its limit."""
        if not self.open:
            return 0
        try:
            check_logits(logits_V, f"token {len(self._ids)} of a turn")
        except PolicyError as error:
            self.open, self._error = False, error
            return 0
        logprobs_V = processed(logits_V.cpu(), self._sampling)
        if self._sampling.temperature == 0:
            index = int(logprobs_V.argmax())
        else:
            index = int(torch.multinomial(logprobs_V.exp(), 1, generator=self._generator))
        end = len(self._ids)
        start = self._versions.pop()[1] if self._versions and self._versions[-1][0] == version else end
        self._versions.append((version, start, end + 1))
        self._ids.append(index)
        self._logprobs.append(min(0.0, float(logprobs_V[index])))
        if self._watch.push(index) or index in self._stop_ids:
            self.open, self._finish = False, "stop"
        elif len(self._ids) == self._room:
            self.open = False
        if self._listen is not None and not self._listen(self.request, end, index, self._logprobs[-1]) and self.open:
            self.open, self._finish = False, "abort"
        return index

    def answer(self, engine: str) -> Completion | Exception:
        """Return the turn, or why there is none."""
        if self._error is not None:
            return self._error
        ids_T = np.array(self._ids, dtype=np.int32)
        kind: LogprobKind = "raw" if _is_raw(self._sampling) else "processed"
        return Completion(
            ids_T,
            np.array(self._logprobs, dtype=np.float32),
            finish_reason=self._finish,
            weight_versions=tuple(self._versions),
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


def check_logits(logits: torch.Tensor, where: str) -> None:
    """Refuse logits that are infinite or no numbers."""
    if not bool(torch.isfinite(logits).all()):
        raise PolicyError("the model's logits are no numbers", where=where)
