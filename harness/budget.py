"""How much an episode, or a whole run, may take."""

import time
from dataclasses import dataclass, field

from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.types import Completion

__all__ = ["Budget", "Spending"]


class Budget(Config):
    """Limit what is spent; the turn that reaches a limit is the last one, and its truncation names it.

    Tokens and cost count every attempt, also those that were thrown away, and what subagents and summaries take. Where
    one of these reaches a limit, the policy is not asked any more, and an empty turn names it.
    """

    turns: int | None = Field(default=None, ge=1, description="attempts at turns; None sets no limit, here and below")
    tokens: int | None = Field(default=None, ge=1, description="sampled tokens; the last turn is cut to what is left")
    seconds: float | None = Field(default=None, gt=0, description="time since the start; it ends requests in flight")
    cost: float | None = Field(default=None, gt=0, description="money, by the two prices")
    prompt_price: float = Field(default=0.0, ge=0, description="of a million tokens of context")
    completion_price: float = Field(default=0.0, ge=0, description="of a million sampled tokens")
    retries: int | None = Field(default=None, ge=0, description="attempts beyond the first, of turns and of tools")


@dataclass(slots=True)
class Spending:
    """Count what was spent, here and in all that this is a part of.

    Args:
        budget: The limits.
        above: What this is a part of: an episode's run, a subagent's parent.
    """

    budget: Budget
    above: "Spending | None" = None
    turns: int = 0
    tokens: int = 0
    retries: int = 0
    cost: float = 0.0
    started: float = field(default_factory=time.time)

    def add(self, context_length: int, completion: Completion) -> None:
        """Count one attempt at a turn."""
        budget, drawn = self.budget, len(completion.ids_T) if completion.origin == "sampled" else 0
        self.turns += 1
        self.tokens += drawn
        self.cost += (context_length * budget.prompt_price + drawn * budget.completion_price) / 1e6
        if self.above is not None:
            self.above.add(context_length, completion)

    def retry(self) -> bool:
        """Take one retry; tells whether there was one left."""
        limits = [spent for spent in self._chain() if spent.budget.retries is not None]
        if any(spent.retries >= (spent.budget.retries or 0) for spent in limits):
            return False
        for spent in self._chain():
            spent.retries += 1
        return True

    def exhausted(self) -> str | None:
        """Return the limit that is reached: `turns`, `tokens`, `seconds` or `cost`; None where there is room."""
        for spent in self._chain():
            budget = spent.budget
            for name, used, limit in (
                ("turns", spent.turns, budget.turns),
                ("tokens", spent.tokens, budget.tokens),
                ("seconds", time.time() - spent.started, budget.seconds),
                ("cost", spent.cost, budget.cost),
            ):
                if limit is not None and used >= limit:
                    return name
        return None

    def tokens_left(self) -> int | None:
        """Return how many tokens may still be sampled; None without a limit."""
        left = [spent.budget.tokens - spent.tokens for spent in self._chain() if spent.budget.tokens is not None]
        return min(left, default=None)

    def deadline(self) -> float | None:
        """Return when the time is over, in Unix seconds; None without a limit."""
        ends = [spent.started + spent.budget.seconds for spent in self._chain() if spent.budget.seconds is not None]
        return min(ends, default=None)

    def _chain(self) -> "list[Spending]":
        chain: list[Spending] = [self]
        while chain[-1].above is not None:
            chain.append(chain[-1].above)
        return chain
