"""The loop that drives a policy through worlds."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.recording import new_episode_id
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError, DataMissing, FingerprintMismatch, TraceError, UnknownName, unknown_name
from agentgym_tok.harness.blocking import run_blocking
from agentgym_tok.harness.budget import Budget, Spending
from agentgym_tok.harness.compaction import Compaction
from agentgym_tok.harness.crew import Crew, Job
from agentgym_tok.harness.observers import observer_of
from agentgym_tok.harness.progress import Progress
from agentgym_tok.harness.resume import finished
from agentgym_tok.harness.retries import Retries
from agentgym_tok.harness.rollout import Rollout
from agentgym_tok.harness.setup import Setup
from agentgym_tok.harness.slots import Slot, slots_of, task_id
from agentgym_tok.harness.starts import Starts, TokenGym, failed_start, in_world
from agentgym_tok.harness.subagents import Subagents
from agentgym_tok.harness.tools import Toolbox
from agentgym_tok.harness.worker_shards import bring_to_rest, worker_shards
from agentgym_tok.policies import load_policy
from agentgym_tok.policies.asker import Asker
from agentgym_tok.trace import Episode, EpisodeHead, TraceStore
from agentgym_tok.trace.rows import family
from agentgym_tok.types import Policy, Sampling

if TYPE_CHECKING:
    from agentgym_tok.harness.scale import RayOptions

__all__ = ["Harness", "Play", "placed"]

Play: TypeAlias = Callable[[Slot], Awaitable[Episode]]
"""Plays a slot."""


class Harness:
    """Drive a policy through token environments, and log every turn's exact context.

    Each method has a twin for asynchronous callers: `arun`, `arun_many`.

    Args:
        policy: A policy, its name, or a callable `ids -> ids`.
        chat: Must be the environments' own format.
        store: Where turns go; None keeps them in the returned episodes only.
        sampling: How turns are drawn.
        compaction: Rewrites conversations that become long; None ends an episode that does not fit.
        retries: What is tried again; nothing without it.
        tools: Tools that the policy may call beside the world's; each episode gets fresh ones.
        subagents: Lets the policy open children; None gives it no such tool.
        budget: Limits of each episode.
        total: Limits of each call of `run` and `run_many`; episodes in flight end with their turn, and those that had
            not begun do not.
        turn_timeout_s: Longest wait for one answer of the policy, in seconds; None waits.
        observers: See every turn, edge and episode: each an `Observer`, or any object with some of its methods.
            What workers play they see when the episode has ended.
        backend: Where episodes of `run_many` are played: `local`, in this process; `ray`, on two workers; or
            `RayOptions`, which say which cluster and how many workers (extra ray). The policy is built there.

    Raises:
        FingerprintMismatch: The policy says that it knows the ids of another chat format.
        ConfigError: The chat format has no way to write a call, and there are tools; an observer observes nothing; or
            workers cannot be had, or not with these limits.
        MissingExtra: Packages of the policy or the backend are not installed.
    """

    def __init__(
        self,
        policy: "Policy | str | Callable[..., Any]",
        chat: ChatFormat,
        *,
        store: TraceStore | None = None,
        sampling: Sampling | None = None,
        compaction: Compaction | None = None,
        retries: Retries | None = None,
        tools: Toolbox | None = None,
        subagents: Subagents | None = None,
        budget: Budget | None = None,
        total: Budget | None = None,
        turn_timeout_s: float | None = None,
        observers: Sequence[object] = (),
        backend: "str | RayOptions" = "local",
    ) -> None:
        self.policy = placed(policy, chat, backend)
        self.chat = chat
        self.store = store
        self.sampling = sampling or Sampling()
        self._budget, self._total = budget or Budget(), total or Budget()
        self._observers = tuple(observer_of(watcher) for watcher in observers)
        self._setup = functools.partial(
            Setup,
            sampling=self.sampling,
            hints=self.policy.wants_info,
            store=store,
            compaction=compaction,
            retries=retries or Retries(),
            tools=tools,
            subagents=subagents,
            turn_timeout_s=turn_timeout_s,
            observers=self._observers,
        )
        known = getattr(self.policy, "fingerprint", chat.fingerprint)
        if known != chat.fingerprint:
            raise FingerprintMismatch(
                "the policy knows the ids of another chat format",
                where=f"Harness, policy {self.policy.name}",
                got=str(known)[:16],
                expected=f"{chat.fingerprint[:16]} ({chat.reference})",
                fix="make the policy, the environments and the harness with the same ChatFormat",
            )
        if total is not None and isinstance(self.policy, Crew):
            raise ConfigError(
                "limits of a whole call cannot be counted over workers",
                where="Harness, total",
                got=repr(total),
                fix="give each episode a budget, or play locally",
            )
        if (tools is not None or subagents is not None) and not chat.writes_calls(with_text=False):
            raise ConfigError(
                "the template has no word for tool calls",
                where=chat.reference,
                got="a harness with tools",
                fix="choose a model whose template writes calls",
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
        return run_blocking(self.arun(env, seed, task))

    async def arun(self, env: TokenGym, seed: int = 0, task: str | int | None = None) -> Episode:
        """Play one episode; see `run`."""
        tokens = self._check(env)
        if isinstance(self.policy, Crew):
            fix = "use run_many, which lets workers make their own environments"
            raise ConfigError("workers cannot play an environment of this process", where="Harness.run", fix=fix)
        head = EpisodeHead(new_episode_id(), task_id(tokens, task, seed), tokens.engine.source, seed=seed)
        async with Asker(self.policy) as asker:
            setup, total = self._setup(asker), Spending(self._total)

            async def start() -> tuple[TokenGym, dict[str, Any]]:
                _, info = await in_world(tokens, lambda: env.reset(seed=seed, options={"task": head.task}))
                return env, info

            begun = await self._begin(head, start, setup, total)
            episode = begun if isinstance(begun, Episode) else await begun.play()
        self._announce(episode)
        return episode

    def run_many(
        self,
        make_env: Callable[[], TokenGym],
        tasks: Sequence[str | int],
        *,
        group_size: int = 1,
        concurrency: int = 64,
        seed: int = 0,
        resume: str | Path | None = None,
        on_episode: Callable[[Episode], None] | None = None,
        progress: bool = False,
        keep: bool = True,
    ) -> list[Episode]:
        """Play many episodes at once; what they ask at the same time goes to the policy as one batch.

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
            resume: Folder of a run, such as the store's own, that was begun with the same tasks, sizes and seed:
                episodes that have ended there, or in the store, are taken from it, and the others are played from
                their start.
            on_episode: Called with each episode when it ends.
            progress: Show a bar with the successes so far on a terminal, lines elsewhere.
            keep: Return the episodes; False keeps none in memory, for runs of many thousands.

        Returns:
            The episodes: those of a task together, in the order of the tasks, whatever ended first. Without those that
            the `total` budget did not let begin.

        Raises:
            ConfigError: A number is not positive, an environment does not fit, or the store holds one of the groups.
            UnknownName: There is no such task.
            TraceError: The store cannot take a turn.
        """
        return run_blocking(
            self.arun_many(
                make_env,
                tasks,
                group_size=group_size,
                concurrency=concurrency,
                seed=seed,
                resume=resume,
                on_episode=on_episode,
                progress=progress,
                keep=keep,
            )
        )

    async def arun_many(
        self,
        make_env: Callable[[], TokenGym],
        tasks: Sequence[str | int],
        *,
        group_size: int = 1,
        concurrency: int = 64,
        seed: int = 0,
        resume: str | Path | None = None,
        on_episode: Callable[[Episode], None] | None = None,
        progress: bool = False,
        keep: bool = True,
    ) -> list[Episode]:
        """Play many episodes at once; see `run_many`."""
        if group_size < 1 or concurrency < 1:
            got = f"{group_size=}, {concurrency=}"
            raise ConfigError("groups and concurrency are at least 1", where="Harness.run_many", got=got)
        with Starts(make_env, self._check) as starts:
            slots = slots_of(starts.tokens, tasks, group_size, seed)
            missing = {slot.place: slot for slot in slots}
            if resume is None:
                self._refuse_repeated(slots)
            with Progress(len(slots), self.policy.name, shown=progress) as bar:

                def settle(slot: Slot, episode: Episode) -> None:
                    slot.episode = episode if keep else None
                    bar.advance(solved=bool(episode.success))
                    if on_episode is not None:
                        on_episode(episode)

                if resume is not None:
                    if self.store is not None:
                        living = self.policy.living() if isinstance(self.policy, Crew) else ()
                        bring_to_rest(self.store.run, worker_shards(self.store, but=living))
                    for place, episode in finished(self.store, resume, [*missing]):
                        settle(missing.pop(place), episode)
                rest = [*missing.values()]
                if isinstance(self.policy, Crew):
                    job = self._job(make_env, starts.tokens.engine.source)
                    await self.policy.play(job, rest, concurrency, functools.partial(self._retell, settle))
                else:
                    await self._fly(rest, starts, concurrency, settle)
        return [slot.episode for slot in slots if slot.episode is not None]

    async def _fly(
        self,
        slots: Sequence[Slot],
        starts: Starts,
        concurrency: int,
        settle: Callable[[Slot, Episode], None],
    ) -> None:
        """Play so many episodes at once as may be, in their order."""
        total, waiting = Spending(self._total), iter(slots)

        async def play(setup: Setup) -> None:
            for slot in waiting:
                if total.exhausted():
                    return
                episode = await self._play(slot, starts, setup, total)
                self._announce(episode)
                settle(slot, episode)

        async with Asker(self.policy) as asker:
            setup = self._setup(asker)
            await _together([play(setup) for _ in range(min(concurrency, len(slots)))])

    @contextlib.asynccontextmanager
    async def table(self, make_env: Callable[[], TokenGym]) -> AsyncIterator[Play]:
        """Yield what plays slots as they come, any number at once; for a worker, to whom they are dealt.

        Raises:
            ConfigError: An environment does not fit.
        """
        with Starts(make_env, self._check) as starts:
            async with Asker(self.policy) as asker:
                setup, total = self._setup(asker), Spending(self._total)
                yield lambda slot: self._play(slot, starts, setup, total)

    def _job(self, make_env: Callable[[], TokenGym], source: str) -> Job:
        own = ("hints", "store", "observers")  # of the process that plays
        options = {name: value for name, value in self._setup.keywords.items() if name not in own}
        return Job(make_env, source, {**options, "budget": self._budget}, self.store)

    def _retell(self, settle: Callable[[Slot, Episode], None], slot: Slot, episode: Episode) -> None:
        """Tell observers of an episode that was played elsewhere, and settle it."""
        for observer in self._observers:
            for turn in (turn for member in family(episode) for turn in member.turns):
                observer.on_turn(turn)
                if turn.edge.kind != "continuation":
                    observer.on_edge(turn.edge, turn)
        self._announce(episode)
        settle(slot, episode)

    async def _play(self, slot: Slot, starts: Starts, setup: Setup, total: Spending) -> Episode:
        source = starts.tokens.engine.source
        head = EpisodeHead(new_episode_id(), slot.task, source, slot.group_id, slot.replica, slot.seed)
        again = slot.replica > 0
        begun = await self._begin(head, lambda: starts.begin(slot.task, slot.seed, again=again), setup, total)
        if isinstance(begun, Episode):
            return begun
        try:
            return await begun.play()
        finally:
            starts.give_back(begun.env)

    def _announce(self, episode: Episode) -> None:
        for observer in self._observers:
            observer.on_episode(episode)

    async def _begin(
        self,
        head: EpisodeHead,
        start: Callable[[], Awaitable[tuple[TokenGym, dict[str, Any]]]],
        setup: Setup,
        total: Spending,
    ) -> Rollout | Episode:
        """Return a rollout that awaits its first turn, or the record of a world that did not start."""
        try:
            env, info = await start()
            return Rollout(env, info, replace(head, task=info["task"]), setup, Spending(self._budget, total))
        except (UnknownName, ConfigError, DataMissing, TraceError):
            raise  # a mistake of the caller, or no store: the same for every episode
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a record
            return failed_start(head, error, self.store)

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

    def _refuse_repeated(self, slots: Sequence[Slot]) -> None:
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
                fix="pass another seed to each call, open another store, or resume this one: resume=store.run",
            )


def placed(policy: "Policy | str | Callable[..., Any]", chat: ChatFormat, backend: "str | RayOptions") -> Policy:
    """Return a policy of this process, or workers that have it.

    Args:
        policy: A policy, its name, or a callable `ids -> ids`; workers are taken as they are.
        chat: The chat format.
        backend: See `Harness`.

    Raises:
        UnknownName: There is no such backend, or no such policy.
        ConfigError: It cannot be had.
        MissingExtra: Its packages are not installed.
    """
    if backend == "local" or isinstance(policy, Crew):
        return load_policy(policy, chat)
    if isinstance(backend, str) and backend != "ray":
        raise unknown_name("backend", backend, ("local", "ray"))
    from agentgym_tok.harness.scale import RayOptions, RayWorkers  # noqa: PLC0415  # workers have harnesses themselves

    return RayWorkers(policy, chat, RayOptions() if isinstance(backend, str) else backend)


class _EndedError(Exception):
    """Carry what ends the process: raised in a task as it is, it would leave the other tasks where they are."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def _together(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all; the first error cancels the others, waits for their ends, and is raised as it is."""

    async def guarded(coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except (KeyboardInterrupt, SystemExit) as error:
            raise _EndedError(error) from None

    tasks = [asyncio.ensure_future(guarded(coroutine)) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    except _EndedError as ended:
        raise ended.error from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
