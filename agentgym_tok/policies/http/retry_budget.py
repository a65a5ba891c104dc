"""How often an engine's clients may try again, so that a storm of failures does not become one of retries."""

from dataclasses import dataclass, field

__all__ = ["RetryBudget"]


@dataclass(slots=True)
class RetryBudget:
    """Let retries be a share of the requests; not safe for several threads.

    Each request puts its share in, each retry takes a whole one out. What was saved up is bounded, so that a long calm
    does not pay for a storm.

    Args:
        share: Retries per request in the long run.
        reserve: Retries that are there at the start, and the most that can be saved up.
    """

    share: float = 0.25
    reserve: float = 8.0
    retries: int = 0
    """Retries that were granted."""
    refused: int = 0
    """Retries that were not."""
    _saved: float = field(init=False)

    def __post_init__(self) -> None:
        self._saved = self.reserve

    def deposit(self) -> None:
        """Count a request."""
        self._saved = min(self.reserve, self._saved + self.share)

    def withdraw(self) -> bool:
        """Take a retry out; False where none is left."""
        if self._saved < 1:
            self.refused += 1
            return False
        self._saved -= 1
        self.retries += 1
        return True
