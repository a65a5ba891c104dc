"""What an explorer is: a player who knows of an episode what its texts say, and nothing else."""

from typing import Protocol

__all__ = ["Explorer"]


class Explorer(Protocol):
    """Play one episode by its texts: what the world says goes in, commands come out.

    It knows its kind of world as well as anybody may who has seen the train tasks, and of the task at hand only what
    the agent was shown. Equal texts give equal commands. The commands told may be another player's: what the explorer
    would do then, from where that player stands, is what imitation needs.
    """

    @property
    def thought(self) -> str:
        """What it says before the command that `act` returns; empty where it says nothing.

        A small model that imitates it reads its own words: each step from one text to the next is then a copy. Equal
        texts give equal thoughts.
        """
        ...

    def reset(self, observation: str) -> None:
        """Begin an episode.

        Args:
            observation: The world's first text, which holds the task.
        """
        ...

    def follow(self, command: str, observation: str) -> None:
        """Learn what was done and what the world answered.

        Args:
            command: What was done, by whomever.
            observation: The world's answer, as the agent was shown it.
        """
        ...

    def act(self) -> str | None:
        """Return the next command, or None where the explorer knows no way on."""
        ...
