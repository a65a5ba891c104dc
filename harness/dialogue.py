"""What an episode says to the policy and hears from it, written as turns: seeds, attempts, edges, what was spent."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentgym_tok.envs.recording import Recorder, StepResult
from agentgym_tok.errors import AgentGymTokError
from agentgym_tok.harness.budget import Spending
from agentgym_tok.harness.setup import Setup
from agentgym_tok.policies.asker import Answer
from agentgym_tok.seeds import derive_seed
from agentgym_tok.tokens import Context, Span, as_ids
from agentgym_tok.trace import Edge, EdgeKind, Failure, Status, Turn
from agentgym_tok.types import Completion, FinishReason, Message, Request, Sampling

__all__ = ["Dialogue"]


@dataclass(frozen=True, slots=True)
class _Declared:
    """What the harness says of the next context, which the environment did not make."""

    kind: EdgeKind
    reason: str
    messages: tuple[Message, ...]


class Dialogue:
    """Ask the policy for the turns of one episode, and log every attempt.

    Each attempt is asked for (`ask`) and then written once what came of it is known (`write`).

    Args:
        recorder: Writes turns.
        setup: What all episodes have in common.
        spending: What the episode has spent.
    """

    def __init__(self, recorder: Recorder, setup: Setup, spending: Spending) -> None:
        self.recorder = recorder
        self.spending = spending
        self.index = 0
        self.attempt = 0
        self.fatal: Exception | None = None
        """What the store or an observer raised: no failure of the episode."""
        self._setup = setup
        self._context: Context
        self._request: Request | None = None
        self._answer: Answer | None = None
        self._declared: _Declared | None = None
        self._facts: dict[str, Any] = {}
        self._started = 0.0
        self._last_used: int | None = None

    async def ask(self, context: Context, sampling: Sampling, info: Mapping[str, Any] | None = None) -> Answer:
        """Ask for the next attempt, and count what it took.

        The request's seed derives from the episode's seed, task and replica, and from turn and attempt; its tokens and
        its deadline keep within the budget.

        Args:
            context: What the policy answers.
            sampling: How it draws.
            info: What experts may know.

        Returns:
            The turn, or why there is none: ids that no vocabulary has cannot be stored, and are none.
        """
        request = self.prepare(context, sampling, info)
        answer = await self._setup.asker.ask(request)
        self.spending.add(len(context), answer if isinstance(answer, Completion) else self.silence())
        self._answer = answer = _storable(context, answer)
        return answer

    def prepare(self, context: Context, sampling: Sampling, info: Mapping[str, Any] | None = None) -> Request:
        """Return the request for the next attempt, which may then be written without having been asked."""
        head, left = self.recorder.head, self.spending.tokens_left()
        if left is not None and left < sampling.max_tokens:
            sampling = sampling.model_copy(update={"max_tokens": max(1, left)})
        self._context, self._answer, self._started = context, None, time.time()
        limits = (self.spending.deadline(), self._setup.turn_timeout_s and self._started + self._setup.turn_timeout_s)
        deadline = min((end for end in limits if end is not None), default=None)
        seed = derive_seed(head.seed, head.task, head.replica, self.index, self.attempt)
        self._request = Request(context.ids, sampling, seed, head.id, deadline, info)
        return self._request

    def silence(self, finish_reason: FinishReason = "abort") -> Completion:
        """Return the answer of a policy that gave none, or was not asked."""
        assert self._request is not None  # something was prepared
        return Completion(as_ids([]), finish_reason=finish_reason, sampling=self._request.sampling)

    def declare(self, kind: EdgeKind, reason: str, messages: Sequence[Message]) -> None:
        """Say how the context of the next turn came about, and the messages that tell it."""
        self._declared = _Declared(kind, reason, tuple(messages))

    def remember(self, **facts: Any) -> None:
        """Keep facts for the next turn that is written."""
        self._facts |= facts

    def write(
        self,
        completion: Completion,
        *,
        step: StepResult | None = None,
        failure: Failure | None = None,
        truncation: str | None = None,
        used: bool = True,
        put_back: bool = False,
        **facts: Any,
    ) -> Turn:
        """Write the attempt that was asked for.

        Args:
            completion: What the policy answered.
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
        assert self._request is not None  # it was asked for
        try:
            turn = self.recorder.record(
                self._context,
                completion,
                sent=self._request.ids_T,
                seed=self._request.seed,
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
            self._went_on(used=used)
            for observer in self._setup.observers:
                observer.on_turn(turn)
                if turn.edge.kind != "continuation":
                    observer.on_edge(turn.edge, turn)
        except Exception as error:
            self.fatal = error
            raise
        return turn

    def _went_on(self, *, used: bool) -> None:
        self._facts, self._request, self._answer = {}, None, None
        if used:
            self._last_used = self.index
            self.next_turn()
        else:
            self.attempt += 1

    def next_turn(self) -> None:
        """Go on to another turn; attempts that nobody used stay as they are."""
        if self.attempt or (self._last_used == self.index):
            self.index, self.attempt, self._declared = self.index + 1, 0, None

    def keep_drawn(self) -> None:
        """Write a turn that was drawn and that nobody has taken, as unused.

        Raises:
            TraceError: The store cannot take it.
        """
        answer = self._answer
        if answer is None and self._request is not None:
            answer = self._setup.asker.drawn(self._request)
        if isinstance(answer, Completion) and self._request is not None:
            self.write(answer, used=False)

    def finish(self, status: Status, failure: Failure | None = None) -> None:
        """Close the episode in the store."""
        self.recorder.finish(status, failure)


def _storable(context: Context, answer: Answer) -> Answer:
    """Return the answer, or the error where it holds ids that no vocabulary has."""
    if isinstance(answer, Completion):
        try:
            context.extend(Span(answer.ids_T, answer.origin, answer.logprobs_T))
        except AgentGymTokError as error:
            return error
    return answer
