"""The turn of one request: its tokens as they are drawn, whose they are, and where it ends."""

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.stops import StopWatch
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.base import Listen, draws_untouched
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Completion, FinishReason, LogprobKind, Request

__all__ = ["Turn", "no_numbers"]


class Turn:
    """Collect the turn of one request.

    Args:
        request: What was asked.
        chat: Knows where turns end.
        room: How many ids the model's context has left.
        listen: Is told of each token.
    """

    def __init__(self, request: Request, chat: ChatFormat, room: int, listen: Listen | None = None) -> None:
        self.request = request
        self.sampling = request.sampling
        self._listen = listen
        self._stop_ids = chat.stop_ids
        self._watch = StopWatch(chat, request.sampling.stop)
        self._room = min(request.sampling.max_tokens, room)
        self._finish: FinishReason = "length" if self._room == request.sampling.max_tokens else "truncated"
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._versions: list[tuple[str, int, int]] = []
        self._error: PolicyError | None = None
        self.open = self._room > 0

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def failed(self) -> bool:
        """Whether there is no turn."""
        return self._error is not None

    @property
    def last_id(self) -> int:
        """The id that was drawn last."""
        return self._ids[-1]

    def context(self) -> Ids:
        """Return the context and the turn so far."""
        return np.concatenate([self.request.ids_T, np.array(self._ids, dtype=np.int32)])

    def fail(self, error: PolicyError) -> None:
        """Close the turn; this is why there is none."""
        self.open, self._error = False, error

    def add(self, index: int, logprob: float, version: str) -> None:
        """Take the next id, and close the turn at a stop token, a stop string or its limit.

        Args:
            index: The id.
            logprob: Its log-probability in nats; rounding puts that of a certain id above zero.
            version: The weights that it was drawn by.
        """
        end = len(self._ids)
        start = self._versions.pop()[1] if self._versions and self._versions[-1][0] == version else end
        self._versions.append((version, start, end + 1))
        self._ids.append(index)
        self._logprobs.append(min(0.0, logprob))
        if self._watch.push(index) or index in self._stop_ids:
            self.open, self._finish = False, "stop"
        elif len(self._ids) == self._room:
            self.open = False
        if self._listen is not None and not self._listen(self.request, end, index, self._logprobs[-1]) and self.open:
            self.open, self._finish = False, "abort"

    def answer(self, engine: str) -> Completion | Exception:
        """Return the turn, or why there is none."""
        if self._error is not None:
            return self._error
        raw = self.sampling.temperature == 0 or draws_untouched(self.sampling)
        kind: LogprobKind = "raw" if raw else "processed"
        return Completion(
            np.array(self._ids, dtype=np.int32),
            np.array(self._logprobs, dtype=np.float32),
            finish_reason=self._finish,
            weight_versions=tuple(self._versions),
            logprobs=kind,
            engine=engine,
            sampling=self.sampling,
        )


def no_numbers(where: str) -> PolicyError:
    """Return the error of logits that are infinite or no numbers."""
    return PolicyError("the model's logits are no numbers", where=where)
