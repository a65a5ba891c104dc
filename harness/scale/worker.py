"""A worker: an engine, worlds and a shard of the trace in a process of its own."""

import asyncio
import contextlib
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from agentgym_tok.errors import AgentGymTokError, ConfigError
from agentgym_tok.harness.harness import Harness, Play
from agentgym_tok.harness.slots import Slot
from agentgym_tok.harness.starts import TokenGym
from agentgym_tok.policies import load_policy
from agentgym_tok.trace import Episode, RunMeta, TraceStore
from agentgym_tok.trace.records import library_version

__all__ = ["Facts", "Folder", "Order", "Worker"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Say what a worker's engine is."""

    name: str
    deterministic: bool
    wants_info: bool
    context_limit: int | None
    takes_weights: bool


@dataclass(frozen=True, slots=True)
class Folder:
    """Say where the trace of a run is, and how a worker finds out whether it is there too.

    Args:
        run: The folder.
        shard: What the name of the worker's shard begins with.
        meta: What the run is made with.
        mark: File in the folder, there as long as the driver plays.
        machine: The driver's `machine()`.
    """

    run: Path
    shard: str
    meta: RunMeta
    mark: Path
    machine: str

    def is_here(self) -> bool:
        """Tell whether this process may write a shard there.

        Not where the folder is a network drive's: the log beside a shard is memory of one machine, and others that
        read the shard meanwhile, as the driver does, would read anything.
        """
        return self.machine == machine() and self.mark.is_file()


@dataclass(frozen=True, slots=True)
class Order:
    """Say what a worker plays.

    Args:
        make_env: Makes a token environment.
        options: Keywords of its harness.
        folder: Of the trace; None where there is none.
    """

    make_env: Callable[[], TokenGym]
    options: Mapping[str, Any]
    folder: Folder | None


@dataclass(slots=True)
class _Session:
    play: Play
    opened: contextlib.AsyncExitStack
    tasks: "set[asyncio.Task[Any]]" = field(default_factory=set)


class Worker:
    """Build an engine once, and play what is dealt out.

    Args:
        name: Unique; the worker's shards carry it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._sessions: dict[str, _Session] = {}
        self._policy: Any = None
        self._chat: Any = None

    async def start(self, library: str, body: bytes, state: Mapping[str, Any] | None, version: str) -> Facts:
        """Build the engine.

        Args:
            library: The driver's version of the library.
            body: The pickled policy, or its name, and the chat format.
            state: Weights to begin with; None leaves the engine's own.
            version: Their label.

        Raises:
            ConfigError: The driver has another version of the library, or the policy cannot be built here.
            AgentGymTokError: What building the policy raises.
        """
        if library != library_version():
            raise ConfigError(
                "driver and worker have different versions of the library",
                where=self._place,
                got=library_version(),
                expected=library,
                fix=f"pip install agentgym-tok=={library} on every node",
            )
        with self._told("the policy cannot be built in a worker"):
            policy, self._chat = cloudpickle.loads(body)
            self._policy = load_policy(policy, self._chat)
            if state is not None:
                self._policy.update_weights(state, version)
        return Facts(
            name=self._policy.name,
            deterministic=self._policy.deterministic,
            wants_info=self._policy.wants_info,
            context_limit=getattr(self._policy, "context_limit", None),
            takes_weights=callable(getattr(self._policy, "update_weights", None)),
        )

    async def update_weights(self, state: Mapping[str, Any], version: str) -> None:
        """Take weights; between episodes."""
        self._policy.update_weights(state, version)

    async def open(self, job: str, body: bytes) -> str | None:
        """Make ready for a job.

        Args:
            job: Its name.
            body: The pickled `Order`.

        Returns:
            Name of the shard that it writes; None where episodes only travel to the driver, which stores them.

        Raises:
            AgentGymTokError: The worlds cannot be made here, or the shard cannot be written.
        """
        async with contextlib.AsyncExitStack() as opened:
            with self._told("the worlds cannot be made in a worker"):
                order: Order = cloudpickle.loads(body)
                folder, store, shard = order.folder, None, None
                if folder is not None and folder.is_here():
                    shard = f"{folder.shard}{self._name}"
                    store = opened.enter_context(TraceStore(folder.run, shard=shard, chat=self._chat, meta=folder.meta))
                harness = Harness(self._policy, self._chat, store=store, **order.options)
                play = await opened.enter_async_context(harness.table(order.make_env))
            self._sessions[job] = _Session(play, opened.pop_all())
        return shard

    async def play(self, job: str, slot: Slot) -> Episode:
        """Play one slot.

        Raises:
            AgentGymTokError: What ends a run: no such task, or a shard that cannot take a turn.
        """
        session, task = self._sessions[job], asyncio.current_task()
        assert task is not None  # coroutines run in tasks
        session.tasks.add(task)
        try:
            return await session.play(slot)
        finally:
            session.tasks.discard(task)

    async def close(self, job: str) -> None:
        """End a job: what is in flight becomes abandoned, and the shard is a plain file again."""
        session = self._sessions.pop(job, None)
        if session is None:
            return
        tasks = [*session.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await session.opened.aclose()

    @property
    def _place(self) -> str:
        return f"worker {self._name} on {platform.node()}"

    @contextlib.contextmanager
    def _told(self, what: str) -> Any:
        """Say of an error where it happened; one that is not ours may not even be known where the driver is."""
        try:
            yield
        except AgentGymTokError as error:
            error.where = self._place if error.where is None else f"{error.where}, {self._place}"
            raise
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            fix = "install what it needs on every node"
            raise ConfigError(what, where=self._place, got=got, fix=fix) from error


def machine() -> str:
    """Name the running system of this machine: processes that share it may share a shard's log."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # no Linux
        return f"{platform.node()}-{os.getuid()}"
