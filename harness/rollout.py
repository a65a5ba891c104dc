"""One episode in flight: what to ask the policy next, and what its answer does."""

import time
from typing import Any

import gymnasium as gym

from agentgym_tok.envs.recording import Recorder, Step, new_episode_id
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import AgentGymTokError, InvalidAction, InvalidIds, TraceError
from agentgym_tok.seeds import derive_seed
from agentgym_tok.tokens import Context, Ids, Span, as_ids
from agentgym_tok.trace import Episode, EpisodeHead, Failure, Status, TraceStore
from agentgym_tok.types import Completion, Request, Sampling

__all__ = ["Rollout"]

_NO_IDS = as_ids([])


class Rollout:
    """Drive one environment by completions; a failure ends the episode as a record.

    Args:
        env: A token environment, wrapped or not, just reset.
        info: What its `reset` returned.
        sampling: How turns are drawn.
        run_seed: Seed of the run; each request's seed derives from it, the task, the replica and the turn.
        group_id: Rollouts from one start share it.
        replica: Place in the group.
        hints: Give experts what they may know.
        store: Where turns go.
    """

    def __init__(
        self,
        env: "gym.Env[Ids, Ids]",
        info: dict[str, Any],
        *,
        sampling: Sampling,
        run_seed: int,
        group_id: str = "",
        replica: int = 0,
        hints: bool = False,
        store: TraceStore | None = None,
    ) -> None:
        assert isinstance(env.unwrapped, TokenEnv)  # the harness checks
        self.env = env
        self._tokens: TokenEnv = env.unwrapped
        self._sampling = sampling
        self._run_seed = run_seed
        self._hints = hints
        head = EpisodeHead(
            id=new_episode_id(),
            task=info["task"],
            source=self._tokens.engine.source,
            group_id=group_id,
            replica=replica,
            seed=run_seed,
        )
        self._recorder = Recorder(self._tokens, head, info, store)
        self._request: Request
        self._started = 0.0
        self._status: Status = "running"
        self._failure: Failure | None = None

    @property
    def running(self) -> bool:
        """The episode awaits another turn."""
        return self._status == "running"

    def ask(self) -> Request:
        """Return the request for the next turn."""
        head = self._recorder.head
        self._started = time.time()
        self._request = Request(
            self._tokens.context.ids,
            self._sampling,
            seed=derive_seed(self._run_seed, head.task, head.replica, len(self._recorder.turns), 0),
            conversation=head.id,
            info=self._tokens.hints() if self._hints else None,
        )
        return self._request

    def answer(self, completion: Completion) -> None:
        """Give the world the policy's turn.

        Raises:
            TraceError: The store cannot take the turn.
        """
        context = self._tokens.context
        if completion.finish_reason == "truncated" and not len(completion.ids_T):
            self._record(context, completion, truncation="context_overflow")
            return self._end("done")
        try:
            turn = context.extend(Span(completion.ids_T, completion.origin, completion.logprobs_T))
        except AgentGymTokError as error:
            return self.fail(error)  # ids that no vocabulary has cannot be stored either; the error names them
        try:
            self._tokens.adopt(turn)
            _, reward, terminated, truncated, info = self.env.step(completion.ids_T)
        except TraceError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a record, never a crash of the batch
            at_policy = isinstance(error, (InvalidAction, InvalidIds))
            failure = Failure("policy" if at_policy else "world", type(error).__name__, str(error))
            self._record(context, completion, failure=failure)
            return self._end("failed", failure)
        step = Step(float(reward), terminated, truncated, info)
        self._record(context, completion, step=step)
        if step.over:
            self._end("done")
        return None

    def fail(self, error: Exception) -> None:
        """End the episode because the policy gave no answer that can be one."""
        failure = Failure("policy", type(error).__name__, str(error))
        nothing = Completion(_NO_IDS, finish_reason="abort", sampling=self._sampling)
        self._record(self._tokens.context, nothing, failure=failure)
        self._end("failed", failure)

    def episode(self) -> Episode:
        """Return the episode as far as it went."""
        recorder = self._recorder
        return Episode(recorder.head, tuple(recorder.turns), self._status, recorder.success, self._failure)

    def _record(self, context: Context, completion: Completion, **outcome: Any) -> None:
        self._recorder.record(
            context,
            completion,
            sent=self._request.ids_T,
            seed=self._request.seed,
            started=self._started,
            **outcome,
        )

    def _end(self, status: Status, failure: Failure | None = None) -> None:
        self._status, self._failure = status, failure
        self._recorder.finish(status, failure)


def start_failure(task: str, error: Exception, *, run_seed: int, source: str = "") -> Episode:
    """Return the record of an episode whose world did not even start."""
    failure = Failure("world", type(error).__name__, str(error))
    head = EpisodeHead(id=new_episode_id(), task=task, source=source, seed=run_seed)
    return Episode(head, (), "failed", success=False, failure=failure)
