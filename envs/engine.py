"""What a world must offer: a plain text engine without Gymnasium or tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

__all__ = ["TextEngine", "TextObservation"]


@dataclass(frozen=True, slots=True)
class TextObservation:
    """Hold what a world says after a reset or a command.

    Args:
        text: The world's words, without any prompt.
        reward: The raw reward of this step.
        terminated: The episode is over by the rules of the world.
        success: The task is solved now; None where the world does not say.
        valid: The world accepted the command; None at reset.
        admissible_commands: Every command that the world would accept now, sorted; empty where it cannot list them.
        truncated: The world itself cut the episode short.
        facts: More of the world's own facts for `info`, such as reward parts, by names that `info` has not already;
            never shown to the policy.
    """

    text: str
    reward: float = 0.0
    terminated: bool = False
    success: bool | None = False
    valid: bool | None = None
    admissible_commands: tuple[str, ...] = ()
    truncated: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class TextEngine(Protocol):
    """Play tasks of one world by text commands.

    An engine knows its tasks by id, plays one at a time and can copy itself in mid-episode. It holds no step limit,
    no prompt and no randomness: equal commands give equal texts. One that holds files or connections may have `close`.
    """

    source: str
    """The name every score carries, such as `"ALFWorld-synth"`."""

    def tasks(self) -> Sequence[str]:
        """Return the ids of all tasks, in an order that never depends on the machine."""
        ...

    def reset(self, task: str | None = None) -> TextObservation:
        """Start a task; None starts the current one again, or the first one.

        Raises:
            UnknownName: No task has this id.
        """
        ...

    def step(self, command: str) -> TextObservation:
        """Give the world one command.

        Raises:
            ResetNeeded: No episode is running.
        """
        ...

    def clone(self) -> Self:
        """Copy the engine in mid-episode; the copy and the original go on independently.

        Raises:
            CloneUnsupported: The world cannot copy its state.
        """
        ...

    def task_info(self) -> Mapping[str, Any]:
        """Return facts of the running task for `info`: `task`, and where known `task_type` and `goal` in words."""
        ...

    def expert_command(self) -> str | None:
        """Return the next command of the world's own expert, or None where it knows none from here."""
        ...
