"""The loop that drives a policy through worlds."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.recording import new_episode_id
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import (
    ConfigError,
    DataMissing,
    FingerprintMismatch,
    PolicyError,
    TraceError,
    UnknownName,
    unknown_name,
)
from agentgym_tok.harness.rollout import Rollout, failed_start
from agentgym_tok.harness.starts import Starts, TokenGym
from agentgym_tok.policies import load_policy
from agentgym_tok.seeds import derive_seed
from agentgym_tok.tokens import TURN_ORIGINS
from agentgym_tok.trace import Episode, EpisodeHead, TraceStore
from agentgym_tok.types import Completion, Policy, Request, Sampling

__all__ = ["Harness"]


class Harness:
    """Drive a policy through token environments, and log every turn's exact context.

    Args:
        policy: A policy, its name, or a callable `ids -> ids`.
        chat: Must be the environments' own format.
        store: Where turns go; None keeps them in the returned episodes only.
        sampling: How turns are drawn.

    Raises:
        FingerprintMismatch: The policy says that it knows the ids of another chat format.
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
        known = getattr(self.policy, "fingerprint", chat.fingerprint)
        if known != chat.fingerprint:
            raise FingerprintMismatch(
                "the policy knows the ids of another chat format",
                where=f"Harness, policy {self.policy.name}",
                got=str(known)[:16],
                expected=f"{chat.fingerprint[:16]} ({chat.reference})",
                fix="make the policy, the environments and the harness with the same ChatFormat",
            )

    def run(self, env: TokenGym, seed: int = 0, task: str | int | None = None) -> Episode:
        """Play one episode, a group of its own.

        Args:
            env: A token environment.
            seed: Seed of the run; without a task it also chooses the task.
            task: The task's id or index.

        Returns:
            The episode; one that failed, even to start, says at which boundary.

        Raises:
            ConfigError: The environment is no token environment of this chat format.
            UnknownName: There is no such task.
            TraceError: The store cannot take the episode, which is then left as abandoned.
        """
        tokens = self._check(env)
        head = EpisodeHead(new_episode_id(), _task_id(tokens, task, seed), tokens.engine.source, seed=seed)
        rollout = self._begin(head, lambda: (env, env.reset(seed=seed, options={"task": head.task})[1]))
        if isinstance(rollout, Episode):
            return rollout
        try:
            while rollout.running:
                self._advance([rollout])
        finally:
            if rollout.running:
                rollout.abandon()
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
        reset once for each member instead. A task that stands in `tasks` again is another group, with a seed of its
        own that derives from the run's.

        What ends the call early, such as Ctrl-C, ends every episode in flight as abandoned.

        Args:
            make_env: Makes a token environment.
            tasks: Ids or indexes of tasks.
            group_size: Rollouts of each task.
            concurrency: Most episodes in flight.
            seed: Seed of the run. The same seed draws the same turns again, so one store takes each task with each
                seed once: give each iteration of a training loop a seed of its own.
            on_episode: Called with each episode when it ends.

        Returns:
            The episodes: those of a task together, in the order of the tasks, whatever ended first.

        Raises:
            ConfigError: A number is not positive, an environment does not fit, or the store holds one of the groups.
            UnknownName: There is no such task.
            TraceError: The store cannot take a turn.
        """
        if group_size < 1 or concurrency < 1:
            got = f"{group_size=}, {concurrency=}"
            raise ConfigError("groups and concurrency are at least 1", where="Harness.run_many", got=got)
        with Starts(make_env, self._check) as starts:
            ids = [_task_id(starts.tokens, task, seed) for task in tasks]
            slots = [_Slot(*group, replica) for group in _groups(ids, seed) for replica in range(group_size)]
            self._refuse_repeated(slots)
            waiting = deque(slots)
            flying: list[_Slot] = []
            try:
                while waiting or flying:
                    while waiting and len(flying) < concurrency:
                        flying.append(waiting.popleft())
                        self._take_off(flying[-1], starts)
                    self._advance([slot.rollout for slot in flying if slot.rollout is not None])
                    for slot in [slot for slot in flying if slot.settle(starts)]:
                        flying.remove(slot)
                        if on_episode is not None and slot.episode is not None:
                            on_episode(slot.episode)
            finally:
                for slot in flying:
                    if slot.rollout is not None and slot.rollout.running:
                        slot.rollout.abandon()
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

    def _refuse_repeated(self, slots: "Sequence[_Slot]") -> None:
        """Refuse groups that the store holds: their samples would be drawn once more, and count twice."""
        if self.store is None:
            return
        stored = {head.group_id for head, _ in self.store.heads()}
        slot = next((slot for slot in slots if slot.group_id in stored), None)
        if slot is not None:
            raise ConfigError(
                "the store holds this task with this seed already",
                where="Harness.run_many",
                got=f"task {slot.task}, seed {slot.seed}, group {slot.group_id}",
                expected="groups that are new in the store",
                fix="pass another seed to each call, or open another store",
            )

    def _take_off(self, slot: "_Slot", starts: Starts) -> None:
        source = starts.tokens.engine.source
        head = EpisodeHead(new_episode_id(), slot.task, source, slot.group_id, slot.replica, slot.seed)
        begun = self._begin(head, lambda: starts.start(slot.task, slot.seed, again=slot.replica > 0))
        if isinstance(begun, Rollout):
            slot.rollout = begun
        else:
            slot.episode = begun

    def _begin(self, head: EpisodeHead, start: Callable[[], tuple[TokenGym, dict[str, Any]]]) -> Rollout | Episode:
        """Return a rollout that awaits its first turn, or the record of a world that did not start."""
        try:
            env, info = start()
        except (UnknownName, ConfigError, DataMissing, TraceError):
            raise  # a mistake of the caller, or no store: the same for every episode
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a record
            return failed_start(head, error, self.store)
        return Rollout(
            env,
            info,
            replace(head, task=info["task"]),
            sampling=self.sampling,
            hints=self.policy.wants_info,
            store=self.store,
        )

    def _advance(self, rollouts: Sequence[Rollout]) -> None:
        """Give each rollout its next turn."""
        asked = [(rollout, request) for rollout in rollouts if (request := rollout.ask()) is not None]
        if asked:
            self._collect(asked)
        for rollout, _ in asked:
            rollout.proceed()

    def _collect(self, asked: Sequence[tuple[Rollout, Request]]) -> None:
        """Let each rollout receive its turn, or why there is none."""
        try:
            answers: object = self.policy.generate([request for _, request in asked])
        except Exception as error:  # noqa: BLE001  # an engine may raise anything; it costs an episode, not the batch
            if len(asked) == 1:
                return asked[0][0].receive(error)
            # Nothing was drawn, and somewhere stands the request that failed: one by one, only that one does.
            for one in asked:
                self._collect([one])
            return None
        if isinstance(answers, Sequence) and len(answers) == len(asked):
            for (rollout, _), answer in zip(asked, answers, strict=True):
                rollout.receive(self._turn(answer))
            return None
        # Which turn belongs to which context cannot be known.
        missed = PolicyError(
            "the policy did not answer each request",
            where=self.policy.name,
            got=f"{len(answers)} answers" if isinstance(answers, Sequence) else type(answers).__name__,
            expected=f"a list of {len(asked)} answers",
        )
        for rollout, _ in asked:
            rollout.receive(missed)
        return None

    def _turn(self, answer: object) -> Completion | Exception:
        if isinstance(answer, Exception) or (isinstance(answer, Completion) and answer.origin in TURN_ORIGINS):
            return answer
        return PolicyError(
            "the policy's answer is no turn",
            where=self.policy.name,
            got=f"origin {answer.origin!r}" if isinstance(answer, Completion) else type(answer).__name__,
            expected=f"a Completion of origin {', '.join(sorted(TURN_ORIGINS))}, or the exception that says why not",
        )


def _task_id(tokens: TokenEnv, task: Any, seed: int) -> str:
    """Return the id of a task: named, by its index, or drawn by the seed as the environment draws one."""
    if isinstance(task, str):
        return task
    ids = tokens.engine.tasks()
    if task is None:
        return ids[int(np.random.default_rng(seed).integers(len(ids)))]
    if not isinstance(task, (int, np.integer)) or not 0 <= task < len(ids):
        raise unknown_name("task", task, [], where=f"Harness, of {len(ids)} tasks")
    return ids[int(task)]


def _groups(tasks: Iterable[str], seed: int) -> Iterator[tuple[str, int, str]]:
    """Yield task, seed and group id of each group; a task that comes again has another seed, so that it differs."""
    seen: Counter[str] = Counter()
    for task in tasks:
        own = derive_seed(seed, task, "again", seen[task]) if seen[task] else seed
        seen[task] += 1
        yield task, own, f"{derive_seed(own, task):016x}"


@dataclass(slots=True)
class _Slot:
    """One episode of a run: waiting, in flight, or done."""

    task: str
    seed: int
    group_id: str
    replica: int
    rollout: Rollout | None = None
    episode: Episode | None = None

    def settle(self, starts: Starts) -> bool:
        """Tell whether the episode is over, and keep it."""
        if self.rollout is not None and not self.rollout.running:
            starts.give_back(self.rollout.env)
            self.episode, self.rollout = self.rollout.episode(), None
        return self.episode is not None
