"""Log a plain Gymnasium loop, turn by turn."""

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike

from agentgym_tok.chat.stops import stop_end
from agentgym_tok.envs.recording import Recorder, StepResult, new_episode_id
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ChatError, ConfigError, InvalidAction, ResetNeeded, TraceError
from agentgym_tok.spaces import TokenSpace
from agentgym_tok.tokens import TURN_ORIGINS, Context, Ids, Logprobs, Span, as_ids, as_logprobs
from agentgym_tok.trace import Boundary, EpisodeHead, Failure, TraceStore
from agentgym_tok.types import Completion, LogprobKind, Message, Sampling

__all__ = ["RecordTrace"]

# A generator that nobody seeded has a seed of 128 bits, and a trace has room for 63.
_SEED = 2**63 - 1

_PLAIN = Sampling()


@dataclass(frozen=True, slots=True)
class _Note:
    """Hold log-probabilities whose ids are still to come."""

    logprobs_T: ArrayLike
    sampling: Sampling | None
    kind: LogprobKind


class RecordTrace(gym.Wrapper[Ids, Ids, Ids, Ids]):
    """Append every turn of a Gymnasium loop to a trace.

    Each `reset` begins an episode; one that was left unfinished is closed as abandoned. The step with which autoreset
    mode NEXT_STEP only resets is no turn. Call `note` before `step` to give a turn's log-probabilities; without them
    the turn is kept and not trained.

    Args:
        env: A token environment. Wrappers of other spaces (`PadTokens`, `TextAction`) go around this one.
        store: Where the turns go. Vector environments need one shard for each process.

    Raises:
        ConfigError: The environment is no token environment, or has other spaces.
    """

    def __init__(self, env: gym.Env[Ids, Ids], store: TraceStore) -> None:
        super().__init__(env)
        spaces = (env.observation_space, env.action_space)
        if not isinstance(env.unwrapped, TokenEnv) or not all(isinstance(space, TokenSpace) for space in spaces):
            raise ConfigError(
                "only token environments can be recorded",
                where="RecordTrace",
                got=f"{env} with {spaces[0]} and {spaces[1]}",
                expected="token spaces",
                fix="wrap the other way round: PadTokens(RecordTrace(env, store))",
            )
        self._tokens: TokenEnv = env.unwrapped
        self._store = store
        self._recorder: Recorder | None = None
        self._whole = False
        self._noted: Completion | _Note | None = None
        self._handed: Ids
        self._offered: Context
        self._conversation: tuple[Message, ...] = ()
        self._started = 0.0

    def note(
        self,
        answer: Completion | ArrayLike | None,
        sampling: Sampling | None = _PLAIN,
        *,
        kind: LogprobKind = "raw",
    ) -> None:
        """Keep what the next step's ids cannot say; that step uses it up, also where it is refused.

        Args:
            answer: float [T], nats, one for each id of the coming action; or a policy's whole `Completion`, which says
                the rest itself. None forgets what was noted.
            sampling: The parameters that it was drawn with; None where nobody knows, and then it is not trained.
            kind: `raw` (of the model) or `processed` (after temperature, top-k and top-p).
        """
        if answer is None or isinstance(answer, Completion):
            self._noted = answer
        else:
            self._noted = _Note(answer, sampling, kind)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Ids, dict[str, Any]]:
        """Begin an episode; see the environment."""
        self._abandon()
        self._noted = None
        ids_T, info = self.env.reset(seed=seed, options=options)
        head = EpisodeHead(
            id=new_episode_id(),
            task=info["task"],
            source=self._tokens.engine.source,
            seed=(self._tokens.np_random_seed or 0) & _SEED,
        )
        self._recorder = Recorder(self._tokens, head, info, self._store)
        self._await(as_ids(ids_T, where="observation"))
        return ids_T, info

    def step(self, action: Ids) -> tuple[Ids, Any, bool, bool, dict[str, Any]]:
        """Give the world one turn and log it; see the environment.

        A turn that the environment refuses is not logged, and the episode goes on. Once the world has moved, every
        error ends the episode as a record, and is raised.

        Raises:
            ResetNeeded: No episode is being recorded.
            TraceError: The store cannot take the turn; the episode ends.
        """
        recorder, tokens = self._recorder, self._tokens
        if recorder is None or not self._whole:
            raise ResetNeeded(
                "no episode is being recorded",
                where="RecordTrace",
                got="step before reset, or after the end or the failure of the episode",
                fix="call reset of this wrapper",
            )
        noted, self._noted = self._noted, None
        context = tokens.context
        asked, completion = self._turn(context, action, noted)
        if asked is context or np.array_equal(context.span.ids_T, completion.ids_T):
            tokens.adopt(asked.extend(Span(completion.ids_T, completion.origin, completion.logprobs_T)))
        adopted, conversation = tokens.context, tokens.conversation
        retold = asked is not self._offered and conversation != self._conversation
        messages = conversation if retold else None
        self._whole = False  # until the turn is logged: nobody goes on from one that the log does not have
        try:
            ids_T, reward, terminated, truncated, info = self.env.step(action)
            step = StepResult(float(reward), terminated, truncated, info)
            handed = as_ids(ids_T, where="observation")
        except Exception as error:
            if tokens.running and tokens.context is adopted:  # refused: nothing happened
                tokens.adopt(context)
                self._whole = True
                raise
            # The world's words may be what the template refuses.
            boundary: Boundary = "harness" if isinstance(error, ChatError) else "world"
            failure = Failure(boundary, type(error).__name__, str(error))
            self._log(recorder, asked, completion, messages=messages, failure=failure)
            self._end(recorder, failure)
            raise
        self._log(recorder, asked, completion, messages=messages, step=step)
        if step.over:
            self._end(recorder)
        else:
            self._await(handed)
        return ids_T, reward, terminated, truncated, info

    def close(self) -> None:
        """Close an unfinished episode as abandoned; the store stays open."""
        self._abandon()
        super().close()

    # ---- inside

    def _await(self, handed: Ids) -> None:
        """Remember what the next turn will answer."""
        self._handed, self._offered = handed, self._tokens.context
        self._conversation = self._tokens.conversation
        self._started = time.time()
        self._whole = True

    def _log(self, recorder: Recorder, asked: Context, completion: Completion, **outcome: Any) -> None:
        # Who adopted another context has handed out its ids himself.
        sent = self._handed if asked is self._offered else asked.ids
        try:
            recorder.record(asked, completion, sent=sent, started=self._started, **outcome)
        except TraceError as error:
            with contextlib.suppress(TraceError):
                self._end(recorder, Failure("store", type(error).__name__, str(error)))
            raise

    def _end(self, recorder: Recorder, failure: Failure | None = None) -> None:
        self._recorder = None
        recorder.finish("done" if failure is None else "failed", failure)

    def _abandon(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish("abandoned")

    def _turn(self, context: Context, action: Ids, noted: Completion | _Note | None) -> tuple[Context, Completion]:
        """Return what the turn answers, and the turn; one may be adopted already, as TextAction does."""
        ids_T = as_ids(action, where="action", vocab_size=self._tokens.chat.vocab_size)
        said = context.span if context.span.origin in TURN_ORIGINS else None
        asked = context if said is None or context.parent is None else context.parent
        if isinstance(noted, Completion):
            if not np.array_equal(noted.ids_T, ids_T):
                raise InvalidAction(
                    "the noted completion is another turn",
                    where="action",
                    got=f"{len(ids_T)} ids",
                    expected=f"the {len(noted.ids_T)} ids of the completion",
                    fix="note each turn right before its step",
                )
            return asked, noted
        origin = "sampled" if said is None else said.origin
        # Whoever adopted log-probabilities did not say how the ids were drawn: they are kept, and not trained.
        note = _Note(said.logprobs_T, None, "raw") if noted is None and said and said.logprobs_T is not None else noted
        logprobs_T: Logprobs | None = None if note is None else as_logprobs(note.logprobs_T, len(ids_T))
        chat, stop = self._tokens.chat, note.sampling.stop if note is not None and note.sampling is not None else ()
        stopped = (len(ids_T) and int(ids_T[-1]) in chat.stop_ids) or stop_end(chat, ids_T, stop) == len(ids_T)
        return asked, Completion(
            ids_T,
            logprobs_T,
            finish_reason="stop" if stopped else "length",
            logprobs="missing" if note is None else note.kind,
            engine="gymnasium loop",
            sampling=None if note is None else note.sampling,
            origin=origin,
        )
