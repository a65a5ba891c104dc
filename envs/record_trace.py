"""Log a plain Gymnasium loop, turn by turn."""

import time
from typing import Any

import gymnasium as gym
from numpy.typing import ArrayLike

from agentgym_tok.envs.recording import Recorder, Step, new_episode_id
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import AgentGymTokError, ConfigError, WorldError
from agentgym_tok.tokens import TURN_ORIGINS, Ids, as_ids, as_logprobs
from agentgym_tok.trace import EpisodeHead, Failure, TraceStore
from agentgym_tok.types import Completion, Sampling

__all__ = ["RecordTrace"]

# A generator that nobody seeded has a seed of 128 bits, and a trace has room for 63.
_SEED = 2**63 - 1


class RecordTrace(gym.Wrapper[Ids, Ids, Ids, Ids]):
    """Append every turn of a Gymnasium loop to a trace.

    Each `reset` begins an episode; one that was left unfinished is closed as abandoned. The step with which autoreset
    mode NEXT_STEP only resets is no turn. Call `note` before `step` to give a turn's log-probabilities; without them
    the turn is kept and not trained.

    Args:
        env: A token environment.
        store: Where the turns go. Vector environments need one shard for each process.

    Raises:
        ConfigError: The environment is no token environment.
    """

    def __init__(self, env: gym.Env[Ids, Ids], store: TraceStore) -> None:
        super().__init__(env)
        if not isinstance(env.unwrapped, TokenEnv):
            raise ConfigError("only token environments can be recorded", where="RecordTrace", got=str(env))
        self._tokens: TokenEnv = env.unwrapped
        self._store = store
        self._recorder: Recorder | None = None
        self._noted: tuple[ArrayLike | None, Sampling | None] | None = None
        self._started = 0.0

    def note(self, logprobs_T: ArrayLike | None, sampling: Sampling | None = None) -> None:
        """Keep what the next step's ids cannot say.

        Args:
            logprobs_T: float [T], nats, one for each id of the coming action.
            sampling: The parameters that it was drawn with.
        """
        self._noted = (logprobs_T, sampling)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Ids, dict[str, Any]]:
        """Begin an episode; see the environment."""
        self._abandon()
        ids_T, info = self.env.reset(seed=seed, options=options)
        head = EpisodeHead(
            id=new_episode_id(),
            task=info["task"],
            source=self._tokens.engine.source,
            seed=(self._tokens.np_random_seed or 0) & _SEED,
        )
        self._recorder = Recorder(self._tokens, head, info, self._store)
        self._started = time.time()
        return ids_T, info

    def step(self, action: Ids) -> tuple[Ids, Any, bool, bool, dict[str, Any]]:
        """Give the world one turn and log it; see the environment.

        A turn that the environment refuses is not logged, and the episode goes on. A world that fails ends the episode
        as a record, and its error is raised.
        """
        recorder, tokens = self._recorder, self._tokens
        if recorder is None:
            return self.env.step(action)  # which says that a reset is needed
        context = tokens.context
        logprobs, sampling = self._noted or (None, None)
        opened = context.span.origin in TURN_ORIGINS  # adopted with its turn, as TextAction does
        asked = context.parent if opened and context.parent is not None else context
        completion = self._completion(action, context.span.origin if opened else "sampled", logprobs, sampling)
        if not opened:
            tokens.adopt(context.sampled(completion.ids_T, completion.logprobs_T))
        try:
            ids_T, reward, terminated, truncated, info = self.env.step(action)
        except Exception as error:
            if isinstance(error, AgentGymTokError) and not isinstance(error, WorldError):
                tokens.adopt(context)
                raise
            failure = Failure("world", type(error).__name__, str(error))
            recorder.record(asked, completion, sent=asked.ids, started=self._started, failure=failure)
            recorder.finish("failed", failure)
            self._recorder = None
            raise
        step = Step(float(reward), terminated, truncated, info)
        recorder.record(asked, completion, sent=asked.ids, started=self._started, step=step)
        self._noted = None
        self._started = time.time()
        if step.over:
            recorder.finish("done")
            self._recorder = None
        return ids_T, reward, terminated, truncated, info

    def close(self) -> None:
        """Close an unfinished episode as abandoned; the store stays open."""
        self._abandon()
        super().close()

    def _abandon(self) -> None:
        if self._recorder is not None:
            self._recorder.finish("abandoned")
            self._recorder = None

    def _completion(
        self, action: Ids, origin: Any, logprobs: ArrayLike | None, sampling: Sampling | None
    ) -> Completion:
        chat = self._tokens.chat
        ids_T = as_ids(action, where="action", vocab_size=chat.vocab_size)
        return Completion(
            ids_T,
            None if logprobs is None else as_logprobs(logprobs, len(ids_T)),
            finish_reason="stop" if len(ids_T) and int(ids_T[-1]) in chat.stop_ids else "length",
            logprobs="missing" if logprobs is None else "raw",
            engine="gymnasium loop",
            sampling=sampling,
            origin=origin,
        )
