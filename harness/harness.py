"""The loop that drives a policy through worlds."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import CloneUnsupported, ConfigError, DataMissing, UnknownName
from agentgym_tok.harness.rollout import Rollout, start_failure
from agentgym_tok.policies import load_policy
from agentgym_tok.seeds import derive_seed
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Episode, TraceStore
from agentgym_tok.types import Completion, Policy, Request, Sampling

__all__ = ["Harness"]

TokenGym = gym.Env[Ids, Ids]


class Harness:
    """Drive a policy through token environments, and log every turn's exact context.

    Args:
        policy: A policy, its name, or a callable `ids -> ids`.
        chat: Must be the environments' own format.
        store: Where turns go; None keeps them in the returned episodes only.
        sampling: How turns are drawn.
    """

    def __init__(
        self,
        policy: "Policy | str | Callable[..., Any]",
        chat: ChatFormat,
        *,
        store: TraceStore | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.policy = load_policy(policy, chat)
        self.chat = chat
        self.store = store
        self.sampling = sampling or Sampling()

    def run(self, env: TokenGym, seed: int = 0, task: str | int | None = None) -> Episode:
        """Play one episode.

        Args:
            env: A token environment.
            seed: Seed of the run; without a task it also chooses the task.
            task: The task's id or index.

        Returns:
            The episode; one that failed says at which boundary.

        Raises:
            ConfigError: The environment is no token environment of this chat format.
            UnknownName: There is no such task.
        """
        self._check(env)
        _, info = env.reset(seed=seed, options=None if task is None else {"task": task})
        rollout = self._rollout(env, info, seed)
        while rollout.running:
            self._advance([rollout])
        return rollout.episode()

    def run_many(
        self,
        make_env: Callable[[], TokenGym],
        tasks: Sequence[str | int],
        *,
        group_size: int = 1,
        concurrency: int = 64,
        seed: int = 0,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> list[Episode]:
        """Play many episodes at once; the policy answers all of them in one batch a round.

        Each task is reset once, and its group starts from clones of that one start; a world that cannot be cloned is
        reset once for each member instead.

        Args:
            make_env: Makes a token environment.
            tasks: Ids or indexes of tasks.
            group_size: Rollouts of each task.
            concurrency: Most episodes in flight.
            seed: Seed of the run.
            on_episode: Called with each episode when it ends.

        Returns:
            The episodes: those of a task together, in the order of the tasks, whatever ended first.

        Raises:
            ConfigError: A number is not positive, or an environment does not fit.
        """
        if group_size < 1 or concurrency < 1:
            got = f"{group_size=}, {concurrency=}"
            raise ConfigError("groups and concurrency are at least 1", where="Harness.run_many", got=got)
        starts = _Starts(self, make_env, seed)
        waiting = deque(_Slot(task, replica) for task in tasks for replica in range(group_size))
        slots = list(waiting)
        flying: list[_Slot] = []
        try:
            while waiting or flying:
                while waiting and len(flying) < concurrency:
                    slot = waiting.popleft()
                    slot.begin(starts)
                    flying.append(slot)
                self._advance([slot.rollout for slot in flying if slot.rollout is not None and slot.rollout.running])
                for slot in [slot for slot in flying if slot.settle(starts)]:
                    flying.remove(slot)
                    if on_episode is not None and slot.episode is not None:
                        on_episode(slot.episode)
        finally:
            starts.close()
        return [slot.episode for slot in slots if slot.episode is not None]

    def _check(self, env: TokenGym) -> TokenEnv:
        tokens = env.unwrapped
        if not isinstance(tokens, TokenEnv) or tokens.chat.fingerprint != self.chat.fingerprint:
            raise ConfigError(
                "the harness needs a token environment of its own chat format",
                where="Harness",
                got=str(env) if not isinstance(tokens, TokenEnv) else repr(tokens.chat),
                expected=repr(self.chat),
                fix="pass the same ChatFormat to gym.make and to Harness",
            )
        return tokens

    def _rollout(
        self, env: TokenGym, info: dict[str, Any], seed: int, *, group_id: str = "", replica: int = 0
    ) -> Rollout:
        return Rollout(
            env,
            info,
            sampling=self.sampling,
            run_seed=seed,
            group_id=group_id,
            replica=replica,
            hints=self.policy.wants_info,
            store=self.store,
        )

    def _advance(self, rollouts: Sequence[Rollout]) -> None:
        """Give each rollout its next turn."""
        if not rollouts:
            return
        requests = [rollout.ask() for rollout in rollouts]
        for rollout, answer in zip(rollouts, self._generate(requests), strict=True):
            if isinstance(answer, Completion):
                rollout.answer(answer)
            else:
                rollout.fail(answer)

    def _generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        try:
            return list(self.policy.generate(requests))
        except Exception as error:  # noqa: BLE001  # an engine may raise anything; it costs an episode, not the batch
            if len(requests) == 1:
                return [error]
        # Somewhere in the batch stands the request that failed: one by one, only that one does.
        return [answer for request in requests for answer in self._generate([request])]


@dataclass(slots=True)
class _Slot:
    """One episode of a run: waiting, in flight, or done."""

    task: str | int
    replica: int
    rollout: Rollout | None = None
    episode: Episode | None = None

    def begin(self, starts: "_Starts") -> None:
        started = starts.start(self.task, self.replica)
        if isinstance(started, Rollout):
            self.rollout = started
        else:
            self.episode = started

    def settle(self, starts: "_Starts") -> bool:
        """Tell whether the episode is over, and keep it."""
        if self.rollout is not None and not self.rollout.running:
            starts.give_back(self.rollout.env)
            self.episode, self.rollout = self.rollout.episode(), None
        return self.episode is not None


class _Starts:
    """Start rollouts: groups of one task from clones of one reset, or in environments of their own."""

    def __init__(self, harness: Harness, make_env: Callable[[], TokenGym], seed: int) -> None:
        self._harness, self._make_env, self._seed = harness, make_env, seed
        self._made: list[TokenGym] = []
        self._free: list[TokenGym] = []
        self._base = self._make()
        # A clone is the bare environment: where somebody wrapped it, his wrappers must stay around it.
        self._clones = self._base.unwrapped is self._base
        self._task: str | int | None = None
        self._info: dict[str, Any] = {}
        if not self._clones:
            self._free.append(self._base)

    def _make(self) -> TokenGym:
        env = self._make_env()
        self._made.append(env)
        self._harness._check(env)
        return env

    def start(self, task: str | int, replica: int) -> Rollout | Episode:
        """Return a rollout that awaits its first turn, or the record of a world that did not start."""
        try:
            env, info = self._start(task, replica)
        except (UnknownName, ConfigError, DataMissing):
            raise  # a mistake of the caller, the same for every episode
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a record
            self._task = None
            return start_failure(str(task), error, run_seed=self._seed)
        group_id = f"{derive_seed(self._seed, info['task']):016x}"
        return self._harness._rollout(env, info, self._seed, group_id=group_id, replica=replica)

    def _start(self, task: str | int, replica: int) -> tuple[TokenGym, dict[str, Any]]:
        if self._clones:
            if replica == 0 or self._task != task:
                _, self._info = self._base.reset(seed=self._seed, options={"task": task})
                self._task = task
            try:
                return self._base.clone(), self._info  # type: ignore[attr-defined]  # a bare TokenEnv
            except CloneUnsupported:
                self._clones = False
                self._free.append(self._base)
        env = self._free.pop() if self._free else self._make()
        _, info = env.reset(seed=self._seed, options={"task": task})
        return env, info

    def give_back(self, env: TokenGym) -> None:
        """Take back an environment whose episode is over; clones are left to themselves."""
        if not self._clones and env in self._made:
            self._free.append(env)

    def close(self) -> None:
        for env in self._made:
            env.close()
