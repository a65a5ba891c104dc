"""One episode in flight: what to ask the policy next, and what its answer does."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym

from agentgym_tok.envs.recording import Recorder, StepResult
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import AgentGymTokError, ChatError, InvalidAction, InvalidIds, TraceError
from agentgym_tok.seeds import derive_seed
from agentgym_tok.tokens import Context, Ids, Span, as_ids
from agentgym_tok.trace import Boundary, Episode, EpisodeHead, Failure, Status, TraceStore
from agentgym_tok.types import Completion, Request, Sampling

__all__ = ["Rollout", "failed_start"]

_NO_IDS = as_ids([])


class Rollout:
    """Drive one environment by completions; a failure ends the episode as a record.

    A turn is asked for, received, and then given to the world: in three calls, so that a batch keeps every turn that
    was drawn, whatever happens to one of its episodes.

    Args:
        env: A token environment, wrapped or not, just reset.
        info: What its `reset` returned.
        head: What the episode is; each request's seed derives from its seed, task and replica, and from the turn.
        sampling: How turns are drawn.
        hints: Give experts what they may know.
        store: Where turns go.
    """

    def __init__(
        self,
        env: "gym.Env[Ids, Ids]",
        info: Mapping[str, Any],
        head: EpisodeHead,
        *,
        sampling: Sampling,
        hints: bool = False,
        store: TraceStore | None = None,
    ) -> None:
        assert isinstance(env.unwrapped, TokenEnv)  # the harness checks
        self.env = env
        self._tokens: TokenEnv = env.unwrapped
        self._sampling = sampling
        self._hints = hints
        self._recorder = Recorder(self._tokens, head, dict(info), store)
        self._context: Context
        self._request: Request
        self._index = 0
        self._answer: Completion | Exception | None = None
        self._started = 0.0
        self._status: Status = "running"
        self._failure: Failure | None = None

    @property
    def running(self) -> bool:
        """The episode awaits another turn."""
        return self._status == "running"

    def ask(self) -> Request | None:
        """Return the request for the next turn; None where the world's expert failed, which ends the episode.

        Raises:
            TraceError: The store cannot take the end.
        """
        head = self._recorder.head
        self._index, self._answer = len(self._recorder.turns), None
        self._started = time.time()
        self._context = self._tokens.context
        seed = derive_seed(head.seed, head.task, head.replica, self._index, 0)
        self._request = Request(self._context.ids, self._sampling, seed, head.id)
        if self._hints:
            try:
                self._request = replace(self._request, info=self._tokens.hints())
            except Exception as error:  # noqa: BLE001  # whatever a world raises is a record
                self._give_up("world", error)
                return None
        return self._request

    def receive(self, answer: Completion | Exception) -> None:
        """Keep the policy's turn, or why there is none, until the world gets it."""
        self._answer = answer

    def proceed(self) -> None:
        """Give the world the turn that was received.

        Raises:
            TraceError: The store cannot take the turn.
        """
        answer = self._answer
        if isinstance(answer, Completion):
            self._play(answer)
        elif answer is not None:
            self._give_up("policy", answer)

    def abandon(self) -> None:
        """End the episode because the run ends; a turn that was drawn for it is kept, and marked unused.

        Errors of the store are passed over: what ended the run is the one to see.
        """
        with contextlib.suppress(AgentGymTokError):
            if isinstance(self._answer, Completion) and len(self._recorder.turns) == self._index:
                self._record(self._answer, used=False)
        with contextlib.suppress(TraceError):
            self._end("abandoned")

    def episode(self) -> Episode:
        """Return the episode as far as it went."""
        recorder = self._recorder
        return Episode(recorder.head, tuple(recorder.turns), self._status, recorder.success, self._failure)

    def _play(self, completion: Completion) -> None:
        if completion.finish_reason == "truncated" and not len(completion.ids_T):
            self._record(completion, truncation="context_overflow")
            return self._end("done")
        try:
            turn = self._context.extend(Span(completion.ids_T, completion.origin, completion.logprobs_T))
        except AgentGymTokError as error:
            # Ids that no vocabulary has cannot be stored either; the error names them.
            return self._give_up("policy", error)
        try:
            step = self._step(turn, completion.ids_T)
        except TraceError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a record, never a crash of the batch
            failure = Failure(self._boundary(error), type(error).__name__, str(error))
            self._record(completion, failure=failure)
            return self._end("failed", failure)
        self._record(completion, step=step)
        return self._end("done") if step.over else None

    def _step(self, turn: Context, ids_T: Ids) -> StepResult:
        self._tokens.adopt(turn)
        _, reward, terminated, truncated, info = self.env.step(ids_T)
        return StepResult(float(reward), terminated, truncated, info)

    def _boundary(self, error: Exception) -> Boundary:
        # While the episode still runs the world has seen nothing: what was refused is the policy's turn.
        if self._tokens.running and isinstance(error, (InvalidAction, InvalidIds)):
            return "policy"
        return _start_boundary(error)

    def _give_up(self, boundary: Boundary, error: Exception) -> None:
        """End the episode because there is no turn."""
        failure = Failure(boundary, type(error).__name__, str(error))
        self._record(Completion(_NO_IDS, finish_reason="abort", sampling=self._sampling), failure=failure)
        self._end("failed", failure)

    def _record(self, completion: Completion, **outcome: Any) -> None:
        self._recorder.record(
            self._context,
            completion,
            sent=self._request.ids_T,
            seed=self._request.seed,
            started=self._started,
            **outcome,
        )

    def _end(self, status: Status, failure: Failure | None = None) -> None:
        self._recorder.finish(status, failure)
        self._status, self._failure = status, failure


def _start_boundary(error: Exception) -> Boundary:
    """Say at which boundary a world that does not go on has failed: its words may be what the template refuses."""
    return "harness" if isinstance(error, ChatError) else "world"


def failed_start(head: EpisodeHead, error: Exception, store: TraceStore | None) -> Episode:
    """Return the record of an episode that did not even start, and write it.

    Raises:
        TraceError: The store cannot take it.
    """
    failure = Failure(_start_boundary(error), type(error).__name__, str(error))
    if store is not None:
        store.begin(head)
        store.finish(head.id, "failed", failure=failure)
    return Episode(head, (), "failed", failure=failure)
