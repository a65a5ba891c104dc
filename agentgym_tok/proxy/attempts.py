"""Attempts at one turn that wait until it is known which of them the client used."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from agentgym_tok.proxy.contexts import Given
from agentgym_tok.trace import Turn

__all__ = ["Attempt", "Attempts", "Delivery"]

Delivery: TypeAlias = Literal["unknown", "whole", "part", "none"]


@dataclass(slots=True, eq=False)
class Attempt:
    """Hold one answer, and what became of it.

    Args:
        given: The turn and what the client was told.
        choices: Answers that its request asked for.
        delivery: How much of it reached the client, as far as this side can see.
    """

    given: Given
    choices: int = 1
    delivery: Delivery = "unknown"

    @property
    def is_turn(self) -> bool:
        """It can be used: it did not fail, and nobody broke it off."""
        turn = self.given.turn
        return turn.failure is None and turn.completion.finish_reason != "abort"


@dataclass(slots=True, eq=False)
class Attempts:
    """Hold the attempts at one turn.

    Args:
        index: Index of the turn.
        body: Digest of the request.
    """

    index: int
    body: bytes
    attempts: list[Attempt] = field(default_factory=list)
    taken: Attempt | None = None
    """The one that the client went on from."""
    doubt: str = ""
    """Why none counts as used unless the client goes on from it; empty where there is no doubt."""
    reward: float = 0.0
    """Of the turn, whichever attempt it turns out to be."""
    settled: bool = False
    """Nothing more becomes known."""
    ended: float = 0.0
    """When its last answer had gone out, on the monotonic clock; 0 while it, or one more, is on its way."""

    @property
    def used(self) -> Attempt | None:
        """The attempt that the client used, as far as is known: that which it went on from, or the last one, if whole.

        Of several choices nobody knows which one it was until the client goes on; then none counts as used.
        """
        if self.taken is not None:
            return self.taken
        last = self.attempts[-1]
        lone = last.choices == 1 and last.is_turn and last.delivery in {"unknown", "whole"}
        return last if lone and not self.doubt else None

    def turns(self) -> Iterator[Turn]:
        """Yield all attempts as they are to be written."""
        used = self.used
        for attempt in self.attempts:
            turn = attempt.given.turn
            facts: dict[str, Any] = {**turn.facts, "delivered": attempt.delivery}
            if self.doubt:
                facts["doubt"] = self.doubt
            reward = self.reward if attempt is (used or self.attempts[-1]) else 0.0
            yield replace(turn, used=attempt is used, reward=reward, facts=facts)

    def end(self) -> None:
        """Note that the last answer has gone out."""
        self.ended = time.monotonic()
