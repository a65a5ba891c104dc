"""A language model of two small matrices, without fault, as an engine to spoil and as the reference beside it."""

import functools
import time
from collections.abc import AsyncIterator, Sequence

import numpy as np
from numpy.typing import NDArray

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.doctor.contexts import closing
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies import BasePolicy
from agentgym_tok.tokens import Ids, as_ids, as_logprobs
from agentgym_tok.types import Delta, LogprobKind, ScoreRequest, Scores

CHAT = ChatFormat.builtin()
Floats = NDArray[np.float64]

_WIDTH, _DECAY, _SCALE = 16, 0.9, 0.3
_DRAW = np.random.default_rng(0)
_IN_V_W = _DRAW.normal(size=(CHAT.vocab_size, _WIDTH))
_OUT_W_V = _DRAW.normal(size=(_WIDTH, CHAT.vocab_size)) * _SCALE
_ENDS = {int(ids_T[-1]) for ids_T in closing(CHAT)}


class Model:
    """Depend on all ids of a context, and like to stop where an answer is whole."""

    def logits(self, ids_T: Ids, places: int = 1) -> Floats:
        """Return [places, V]: of the next id after each of the last so many ids."""
        state, states = np.zeros(_WIDTH), []
        for index in ids_T.tolist():
            state = _DECAY * state + _IN_V_W[index]
            states.append(state)
        logits: Floats = np.stack(states[-places:]) @ _OUT_W_V
        for row, index in enumerate(ids_T[-places:].tolist()):
            logits[row, CHAT.stop_ids[0]] += 12 * (index in _ENDS)
        return logits


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(-1, keepdims=True)
    nats: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return nats


def ordered(falling: Floats, sampling: Sampling) -> Floats:
    """Return the log-probabilities of ids that stand in the order of their logits, the likeliest first."""
    scaled = falling / (sampling.temperature or 1.0)
    if sampling.temperature and sampling.top_k:
        scaled[..., sampling.top_k :] = -np.inf
    if sampling.temperature and sampling.top_p < 1:
        shares = np.exp(log_softmax(scaled))
        scaled = np.where(shares.cumsum(-1) - shares >= sampling.top_p, -np.inf, scaled)
    return log_softmax(scaled)


@functools.lru_cache(maxsize=64)
def _ranked(ids: bytes, places: int) -> tuple[Floats, NDArray[np.intp]]:
    """Return logits from the highest to the lowest, and the rank of each id, after each of the last places."""
    logits = Model().logits(np.frombuffer(ids, dtype=np.int32), places)
    order = np.argsort(-logits, -1)
    return np.take_along_axis(logits, order, -1), np.argsort(order, -1)


class Reference:
    """Score by the model."""

    fingerprint = CHAT.fingerprint
    version = "1"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        return [self.one(request) for request in requests]

    def one(self, request: ScoreRequest) -> Scores:
        ((start, end, sampling),) = request.parts
        if start == end:
            return Scores(np.empty(0, np.float32), np.empty(0, np.float32), self.version)
        falling, ranks = _ranked(request.ids_T[: end - 1].tobytes(), end - start)
        places = np.take_along_axis(ranks, request.ids_T[start:end, None], -1)
        raw, drawn = (
            np.take_along_axis(nats, places, -1)[:, 0].astype(np.float32)
            for nats in (log_softmax(falling), ordered(falling, sampling))
        )
        return Scores(raw, drawn, self.version)


class Toy(BasePolicy):
    """Draw from the model; each method is a place to spoil."""

    name = "toy"
    deterministic = True
    context_limit = 300
    kind: LogprobKind = "raw"
    stop_ids = CHAT.stop_ids

    def describe(self) -> str:
        return "toy engine 1.0"

    def sampling(self, request: Request) -> Sampling:
        """Return what is in force."""
        return request.sampling

    def seed(self, request: Request) -> int:
        return request.seed

    def read(self, ids_T: Ids) -> Ids:
        """Return the context as the engine reads it."""
        return ids_T

    def logits(self, ids_T: Ids) -> Floats:
        logits: Floats = Model().logits(ids_T)[0]
        return logits

    def bent(self, logits: Floats) -> Floats:
        """Return what is drawn from; log-probabilities that are raw know nothing of it."""
        return logits

    def logged(self, logprobs: list[float]) -> list[float]:
        return logprobs

    def answer(self, request: Request) -> Completion:
        if request.deadline is not None and request.deadline < time.time():
            raise PolicyError("the engine gave no answer in time")
        sampling, generator = self.sampling(request), np.random.default_rng(self.seed(request))
        context_T = self.read(request.ids_T)
        room = min(sampling.max_tokens, self.context_limit - len(context_T))
        ids: list[int] = []
        logprobs: list[float] = []
        finish = "length" if room == sampling.max_tokens else "truncated"
        while len(ids) < room:
            logits = self.logits(as_ids([*context_T.tolist(), *ids]))
            bent = self.bent(logits)
            order = np.argsort(-bent)
            drawn = ordered(bent[order], sampling)
            rank = int(generator.choice(len(drawn), p=np.exp(drawn))) if sampling.temperature else 0
            ids.append(int(order[rank]))
            logprobs.append(float(log_softmax(logits)[order[rank]] if self.kind == "raw" else drawn[rank]))
            if self.ends(ids, sampling):
                finish = "stop"
                break
        return Completion(
            as_ids(ids),
            as_logprobs(self.logged(logprobs), len(ids)),
            finish_reason=finish,  # type: ignore[arg-type]
            weight_versions=(("1", 0, len(ids)),),
            logprobs=self.kind,
            engine="toy 1.0",
            sampling=request.sampling,
        )

    def ends(self, ids: list[int], sampling: Sampling) -> bool:
        return ids[-1] in self.stop_ids or any(stop in CHAT.decode(as_ids(ids)) for stop in sampling.stop)

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        turn = self.answer(request)
        for place in range(len(turn.ids_T)):
            yield Delta(turn.ids_T[place : place + 1])
        yield Delta(as_ids([]), completion=turn)


class ScoringToy(Toy, Reference):
    """Be an engine that can score, as transformers are."""


def patient(policy: BasePolicy, *, reference: bool = True) -> Patient:
    return Patient(policy, CHAT, Reference() if reference else None)
