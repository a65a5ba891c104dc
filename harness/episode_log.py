"""What an episode asks and gets, written as turns: indexes, attempts, seeds, edges and what was spent."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentgym_tok.envs.recording import Recorder, StepResult
from agentgym_tok.harness.budget import Spending
from agentgym_tok.harness.observers import Observer
from agentgym_tok.seeds import derive_seed
from agentgym_tok.tokens import Context, as_ids
from agentgym_tok.trace import Edge, EdgeKind, Failure, Status, Turn
from agentgym_tok.types import Completion, Message, Request, Sampling

__all__ = ["EpisodeLog"]


@dataclass(frozen=True, slots=True)
class _Declared:
    """What the harness says of the next context, which the environment did not make."""

    kind: EdgeKind
    reason: str
    messages: tuple[Message, ...]


class EpisodeLog:
    """Number the turns of one episode, and log every attempt.

    Args:
        recorder: Writes turns.
        spending: What the episode has spent.
        observers: See what was written.
    """

    def __init__(self, recorder: Recorder, spending: Spending, observers: Sequence[Observer] = ()) -> None:
        self.recorder = recorder
        self.spending = spending
        self.index = 0
        self.attempt = 0
        self._observers = observers
        self._declared: _Declared | None = None
        self._facts: dict[str, Any] = {}
        self._started = 0.0
        self._last_used: int | None = None

    def request(
        self, context: Context, sampling: Sampling, timeout_s: float | None, info: Mapping[str, Any] | None = None
    ) -> Request:
        """Return the request for the next attempt.

        Its seed derives from the episode's seed, task and replica, and from turn and attempt; its tokens and its
        deadline keep within the budget.
        """
        head, left = self.recorder.head, self.spending.tokens_left()
        if left is not None and left < sampling.max_tokens:
            sampling = sampling.model_copy(update={"max_tokens": max(1, left)})
        self._started = time.time()
        ends = [end for end in (self.spending.deadline(), timeout_s and self._started + timeout_s) if end is not None]
        seed = derive_seed(head.seed, head.task, head.replica, self.index, self.attempt)
        return Request(context.ids, sampling, seed, head.id, min(ends, default=None), info)

    def declare(self, kind: EdgeKind, reason: str, messages: Sequence[Message]) -> None:
        """Say how the context of the next turn came about, and the messages that tell it."""
        self._declared = _Declared(kind, reason, tuple(messages))

    def remember(self, **facts: Any) -> None:
        """Keep facts for the next turn that is written."""
        self._facts |= facts

    def write(
        self,
        context: Context,
        request: Request,
        completion: Completion,
        *,
        step: StepResult | None = None,
        failure: Failure | None = None,
        truncation: str | None = None,
        used: bool = True,
        put_back: bool = False,
        **facts: Any,
    ) -> Turn:
        """Write one attempt.

        Args:
            context: What the policy was asked with.
            request: The request for it.
            completion: What it answered.
            step: What the world made of it; None where it was not asked.
            failure: What failed.
            truncation: The limit that ends the episode here.
            used: The episode goes on with this attempt; else the next one is another attempt at the same turn.
            put_back: The world was put back to before the turn; its rewards and its end count for nothing.
            facts: More small JSON-able facts.

        Raises:
            TraceError: The store cannot take it.
        """
        declared = self._declared if self.attempt == 0 else None
        if step is not None and put_back:
            step = replace(step, reward=0.0, terminated=False, truncated=False, info={**step.info, "truncation": None})
        edge = None if declared is None else Edge(declared.kind, self._last_used, self.index, declared.reason)
        turn = self.recorder.record(
            context,
            completion,
            sent=request.ids_T,
            seed=request.seed,
            started=self._started,
            step=step,
            failure=failure,
            truncation=truncation,
            edge=edge,
            messages=None if declared is None else declared.messages,
            attempt=self.attempt,
            used=used,
            put_back=put_back,
            facts={**self._facts, **facts},
        )
        self._facts = {}
        if used:
            self._last_used = self.index
            self.next_turn()
        else:
            self.attempt += 1
        for observer in self._observers:
            observer.on_turn(turn)
            if turn.edge.kind != "continuation":
                observer.on_edge(turn.edge, turn)
        return turn

    def next_turn(self) -> None:
        """Go on to another turn; attempts that nobody used stay as they are."""
        if self.attempt or (self._last_used == self.index):
            self.index, self.attempt, self._declared = self.index + 1, 0, None

    def silence(self, request: Request) -> Completion:
        """Return the answer of a policy that gave none."""
        return Completion(as_ids([]), finish_reason="abort", sampling=request.sampling)

    def finish(self, status: Status, failure: Failure | None = None) -> None:
        """Close the episode in the store."""
        self.recorder.finish(status, failure)
