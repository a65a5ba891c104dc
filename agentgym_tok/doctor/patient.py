"""The policy under examination: how it is asked, and all that it answered."""

import asyncio
import functools
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.doctor.contexts import conversations, open_ended
from agentgym_tok.errors import PolicyError
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.types import Completion, Delta, Policy, Request, Sampling, Scorer, ScoreRequest, Scores

__all__ = ["Patient", "Probe"]

_PATIENCE_S = 300.0
_PROBES = 6

Probe = tuple[Ids, list[Completion]]
"""A context, and turns of one token that were drawn from it at temperature 1."""


class Patient:
    """Ask a policy, and keep count.

    Args:
        policy: The policy under examination.
        chat: The format that it talks in.
        reference: Scores turns by the same weights; None where nothing can.
    """

    def __init__(self, policy: Policy, chat: ChatFormat, reference: Scorer | None) -> None:
        self.policy = policy
        self.chat = chat
        self.reference = reference
        self.requests = 0
        self.turns: list[Completion] = []
        """Every turn so far."""
        self.contexts = conversations(chat)
        """Conversations that differ in what they ask, each ending in the generation prompt."""
        self._seeds = itertools.count(100)

    @property
    def exact(self) -> bool:
        """Whether any turn so far has exact ids."""
        return any(turn.ids_exact for turn in self.turns)

    def request(self, ids_T: Ids, *, seed: int | None = None, max_tokens: int = 12, **sampling: Any) -> Request:
        """Return a request; without a seed, with one that no request had before."""
        parameters = Sampling(max_tokens=max_tokens, **sampling)
        seed = next(self._seeds) if seed is None else seed
        return Request(ids_T, parameters, seed=seed, deadline=time.time() + _PATIENCE_S)

    def answers(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """Ask for a batch at once.

        Raises:
            PolicyError: There are not as many answers as requests.
        """
        self.requests += len(requests)
        answers = list(self.policy.generate(requests))
        if len(answers) != len(requests):
            raise PolicyError(
                "answers are missing or doubled",
                where=self.policy.name,
                got=f"{len(answers)} answers",
                expected=f"{len(requests)}, in order",
                fix="return one answer for each request; an exception stands for one that failed",
            )
        self.turns += [answer for answer in answers if isinstance(answer, Completion)]
        return answers

    def ask(self, requests: Sequence[Request]) -> list[Completion]:
        """Ask for a batch at once.

        Raises:
            Exception: The first of the batch, where one failed.
        """
        turns: list[Completion] = []
        for answer in self.answers(requests):
            if isinstance(answer, Exception):
                raise answer
            turns.append(answer)
        return turns

    def ask_alone(self, requests: Sequence[Request]) -> list[Completion]:
        """Ask for one after the other."""
        return [turn for request in requests for turn in self.ask([request])]

    def stream(self, request: Request) -> list[Delta]:
        """Return the pieces of one streamed turn."""

        async def collect() -> list[Delta]:
            return [piece async for piece in self.policy.stream(request)]

        self.requests += 1
        # In a thread of its own, since notebooks run a loop in theirs.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(collect())).result()

    def scores(
        self, contexts: Sequence[Ids], turns: Sequence[Completion], sampling: Sampling | None = None
    ) -> list[Scores]:
        """Have the reference score turns after contexts, under their own sampling parameters or under others."""
        assert self.reference is not None
        requests = []
        for ids_T, turn in zip(contexts, turns, strict=True):
            parameters = sampling or turn.sampling or Sampling()
            part = (len(ids_T), len(ids_T) + len(turn.ids_T), parameters)
            requests.append(ScoreRequest(as_ids(np.concatenate([ids_T, turn.ids_T])), (part,)))
        return self.reference.score(requests)

    @functools.cached_property
    def flat(self) -> Probe:
        """Of several contexts, the one after which the draws are the least certain, with its draws."""
        contexts = open_ended(self.chat)
        asked = [self.request(ids_T, max_tokens=1) for ids_T in contexts for _ in range(_PROBES)]
        turns = self.ask(asked)
        groups = [turns[start : start + _PROBES] for start in range(0, len(turns), _PROBES)]
        return max(zip(contexts, groups, strict=True), key=lambda probe: _surprise(probe[1]))


def _surprise(turns: Sequence[Completion]) -> tuple[float, float]:
    """Order probes by how many different ids were drawn, then by how unlikely they were."""
    logprobs = [float(turn.logprobs_T[0]) for turn in turns if turn.logprobs_T is not None and len(turn.ids_T)]
    different = len({turn.ids_T.tobytes() for turn in turns})
    return float(different), -sum(logprobs)
