"""Workers on a Ray cluster, as the policy of a harness: episodes are played where the engines are."""

import asyncio
import contextlib
import logging
import math
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.recording import new_episode_id
from agentgym_tok.errors import ConfigError
from agentgym_tok.harness.crew import Job
from agentgym_tok.harness.resume import Place
from agentgym_tok.harness.scale.cluster import RayOptions, answer_of, connect, hire
from agentgym_tok.harness.scale.dealing import Deal, WorkerLost
from agentgym_tok.harness.scale.worker import Facts, Folder, Order, machine
from agentgym_tok.harness.slots import Slot
from agentgym_tok.harness.worker_shards import WORKER, bring_to_rest, ended_in, shard_of, store_whole
from agentgym_tok.policies.base import CallablePolicy
from agentgym_tok.trace import Episode, EpisodeHead, Failure, TraceStore
from agentgym_tok.trace.records import library_version
from agentgym_tok.types import Completion, Delta, Policy, Request

__all__ = ["RayWorkers"]

_LOG = logging.getLogger(__name__)
_CLOSING_S = 20.0
_WARNING_S = 60.0


class RayWorkers:
    """Own processes on a Ray cluster, each with an engine, worlds and a shard of the trace.

    A harness with this policy lets them play whole episodes: `run_many` alone, since `run` plays the environment that
    it is given. Seeds belong to tasks, so that it makes no difference who plays what. A worker that is lost is
    replaced; its episodes are played again from their start, unless they stand in its shard. Workers live until
    `close`, or until nobody holds this object.

    Workers on the driver's machine write shards of their own, beside the driver's. Episodes of other machines come back
    whole, and stand in the driver's shard before they count.

    Args:
        policy: Its name, built in each worker; or a function `ids -> ids` that can be pickled.
        chat: Its format; each worker makes it anew from its recipe, and refuses another one.
        options: Which cluster, and how many workers.

    Raises:
        MissingExtra: Ray is not installed; or, in a worker, what the policy needs.
        ConfigError: There is no cluster, it has no room, its library is of another version, or the policy cannot be
            built in a worker.
        FingerprintMismatch: A worker makes another chat format of the same recipe.
    """

    def __init__(
        self, policy: "str | Policy | Callable[..., Any]", chat: ChatFormat, options: RayOptions | None = None
    ) -> None:
        self.options = options or RayOptions()
        self._body = _pickled((policy, chat), "policy", is_fit=isinstance(policy, str) or not _is_engine(policy))
        self._weights: tuple[Any, str] = (None, "")
        self._ray = connect(self.options)
        self._workers = [self._hire() for _ in range(self.options.workers)]
        self.fingerprint = chat.fingerprint
        try:
            facts = self._first()
        except BaseException:
            self.close()  # whoever holds the error would keep them
            raise
        self.name, self.deterministic, self.wants_info = facts.name, facts.deterministic, facts.wants_info
        self.context_limit, self._takes_weights = facts.context_limit, facts.takes_weights

    def close(self) -> None:
        """Let the workers go."""
        workers, self._workers = self._workers, []
        if self._ray.is_initialized():  # else they are gone with the connection
            for worker in workers:
                self._ray.kill(worker.actor)

    # ---- as a policy

    def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """Refuse: single turns are no work for workers.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "workers play whole episodes",
            where=f"policy {self.name} on Ray",
            got=f"{len(requests)} single requests",
            fix="use Harness.run_many, or the policy itself",
        )

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Refuse, as `generate` does."""
        self.generate([request])
        yield Delta(request.ids_T)

    def update_weights(self, state: Mapping[str, Any], version: str) -> None:
        """Give all workers new weights; they travel through the object store, once to each node.

        Between calls of `run_many`. A worker that is hired later begins with them.

        Args:
            state: Tensors by name, as the policy takes them.
            version: Their label, which tokens will name.

        Raises:
            ConfigError: The policy takes no weights.
            PolicyError: A worker's engine does not take these.
        """
        if not self._takes_weights:
            raise ConfigError("the policy takes no weights", where=f"policy {self.name} on Ray")
        self._weights = (self._ray.put(dict(state)), version)
        told = [(worker, worker.actor.update_weights.remote(*self._weights)) for worker in self._workers]
        for worker, reference in told:
            try:
                self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self._ray.exceptions.RayError as error:
                _LOG.warning("%s is lost: %s", worker.name, error)
                self._replace(worker)

    # ---- as a crew

    def living(self) -> list[str]:
        """Return the names of the workers."""
        return [worker.name for worker in self._workers]

    async def play(
        self, job: Job, slots: Sequence[Slot], concurrency: int, settle: Callable[[Slot, Episode], None]
    ) -> None:
        """Deal slots out to the workers; see `Crew`."""
        if not slots:
            return

        def give_up(slot: Slot, reason: str) -> Episode:
            return _lost(slot, job, f"{self.options.attempts} workers were lost over it, the last one by {reason}")

        room = math.ceil(min(concurrency, len(slots)) / len(self._workers))
        deal = Deal(slots, room=room, attempts=self.options.attempts, settle=settle, give_up=give_up)
        with _marked(job) as folder:
            body = _pickled(Order(job.make_env, job.options, folder), "make_env")
            name = secrets.token_hex(4)

            def hand(worker: "_Worker") -> _Hand:
                return _Hand(self._ray, worker, name, body, job.store)

            def another(lost: _Hand) -> _Hand:
                return hand(self._replace(lost.worker))

            await deal.run([hand(worker) for worker in self._workers], another)

    def _hire(self) -> "_Worker":
        name = f"{WORKER}{secrets.token_hex(4)}"
        actor = hire(self._ray, self.options, name)
        state, version = self._weights
        return _Worker(name, actor, actor.start.remote(library_version(), self._body, state, version))

    def _replace(self, worker: "_Worker") -> "_Worker":
        self._ray.kill(worker.actor)
        new = self._hire()
        self._workers = [new if other is worker else other for other in self._workers]
        return new

    def _first(self) -> Facts:
        """Wait for one worker: the others join when they are ready."""
        references = [worker.started for worker in self._workers]
        ready, _ = self._ray.wait(references, num_returns=1, timeout=_WARNING_S)
        if not ready:
            free = self._ray.available_resources()
            words = "no worker is ready yet; free in the cluster: %g of %g CPUs"
            _LOG.warning(words, free.get("CPU", 0), self._ray.cluster_resources().get("CPU", 0))
            ready, _ = self._ray.wait(references, num_returns=1)
        try:
            facts: Facts = self._ray.get(ready[0])
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise _no_start(error) from error
        return facts


class _Worker:
    """Hold the handle of a worker.

    Args:
        name: Its name.
        actor: Ray's handle.
        started: Reference to its `Facts`.
    """

    def __init__(self, name: str, actor: Any, started: Any) -> None:
        self.name, self.actor, self.started = name, actor, started


class _Hand:
    """A worker for the time of one job.

    Args:
        ray: Ray.
        worker: The worker.
        job: Name of the job.
        body: The pickled order.
        store: The driver's.
    """

    def __init__(self, ray: Any, worker: _Worker, job: str, body: bytes, store: TraceStore | None) -> None:
        self.worker = worker
        self._ray, self._job, self._body, self._store = ray, job, body, store
        self._shard: str | None = None
        self._called = False

    async def open(self) -> None:
        await answer_of(self._ray, self.worker.started)
        self._called = True
        self._shard = await answer_of(self._ray, self.worker.actor.open.remote(self._job, self._body))

    async def play(self, slot: Slot) -> Episode:
        episode: Episode = await answer_of(self._ray, self.worker.actor.play.remote(self._job, slot))
        if self._shard is None and self._store is not None:
            store_whole(self._store, episode)
        return episode

    async def recover(self, wanted: Collection[Place]) -> Mapping[Place, Episode]:
        self._ray.kill(self.worker.actor)
        self._called = False
        if self._store is None or self._shard is None:
            return {}
        run, shard = self._store.run, self._shard
        await asyncio.to_thread(bring_to_rest, run, [shard])
        return ended_in(run, shard, wanted)

    async def close(self) -> None:
        if not self._called:
            return
        with contextlib.suppress(WorkerLost, TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                await answer_of(self._ray, self.worker.actor.close.remote(self._job))


@contextlib.contextmanager
def _marked(job: Job) -> Any:
    """Put a mark into the run's folder, by which workers know it."""
    store = job.store
    if store is None:
        yield None
        return
    mark = Path(store.run, "shards", f".driver-{secrets.token_hex(8)}").absolute()
    mark.touch()
    try:
        yield Folder(store.run.absolute(), shard_of(store, ""), store.meta, mark, machine())
    finally:
        mark.unlink(missing_ok=True)


def _lost(slot: Slot, job: Job, reason: str) -> Episode:
    head = EpisodeHead(new_episode_id(), slot.task, job.source, slot.group_id, slot.replica, slot.seed)
    episode = Episode(head, (), "failed", failure=Failure("harness", "WorkerLost", reason))
    if job.store is not None:
        store_whole(job.store, episode)
    return episode


def _is_engine(policy: object) -> bool:
    return isinstance(policy, Policy) and not isinstance(policy, CallablePolicy)


def _pickled(value: object, what: str, *, is_fit: bool = True) -> bytes:
    got = "an engine that was made here"
    if is_fit:
        try:
            return bytes(cloudpickle.dumps(value))
        except Exception as error:  # noqa: BLE001  # a pickler may raise anything
            got = f"{type(error).__name__}: {error}"
    raise ConfigError(
        "this cannot be sent to workers",
        where=f'backend="ray", {what}',
        got=got,
        expected="a name, or a function that can be pickled",
        fix='name the policy ("hf:PATH", "vllm:URL", "python:module:function"), and make worlds inside make_env',
    )


def _no_start(error: BaseException) -> ConfigError:
    return ConfigError(
        "a worker did not start",
        where='backend="ray"',
        got=" ".join(str(error).split())[:600],
        fix="install agentgym-tok[ray] of this version on every node; /tmp/ray/session_latest/logs there says more",
    )
