"""Episodes that are played in other processes: what these are told, and what a harness expects of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agentgym_tok.harness.slots import Slot
from agentgym_tok.harness.starts import TokenGym
from agentgym_tok.trace import Episode, TraceStore

__all__ = ["Crew", "Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """Say what the episodes of one call have in common.

    Args:
        make_env: Makes one, in the process that plays it.
        source: The name that scores carry.
        options: Keywords of the `Harness` there.
        store: Where episodes go; None keeps them in the returned ones only.
    """

    make_env: Callable[[], TokenGym]
    source: str
    options: Mapping[str, Any]
    store: TraceStore | None


@runtime_checkable
class Crew(Protocol):
    """Play whole episodes elsewhere; as a policy it stands for the engines there."""

    def living(self) -> Collection[str]:
        """Return the names of the processes; their shards are none of the dead."""
        ...

    async def play(
        self, job: Job, slots: Sequence[Slot], concurrency: int, settle: Callable[[Slot, Episode], None]
    ) -> None:
        """Play slots, each once, and settle each with its episode when that is stored."""
        ...

    def close(self) -> None:
        """Let the processes go."""
        ...
