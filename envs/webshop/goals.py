"""What is to be bought, and how the original chooses among many goals."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.webshop.raw import Record, bad, texts

__all__ = ["Goal", "WeightedDraw", "limit_goals"]


@dataclass(frozen=True, slots=True)
class Goal:
    """Hold one goal.

    Args:
        asin: The product that it was made from; buying another one can score as well.
        category: Department of that product.
        query: Its search words.
        name: Its title.
        product_category: Its categories.
        instruction_text: The task in words, as the pages show it.
        attributes: What the purchase must have; at least one.
        price_upper: What it may cost, in dollars; more than 0.
        goal_options: Option values to choose: by name in synthetic goals, which the reward treats differently.
        weight: Of the draw among all goals.
    """

    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction_text: str
    attributes: tuple[str, ...]
    price_upper: float
    goal_options: Mapping[str, str] | tuple[str, ...]
    weight: float = 1.0

    @classmethod
    def from_mapping(cls, fields: object, *, where: str = "goal") -> Self:
        """Read a goal in the original's own form, a mapping of the fields above.

        Raises:
            DataCorrupt: A field is absent, or no goal may hold it; the error names it.
        """
        record = Record(fields, where)
        options = record.get("goal_options", object)
        listed = list(options.values()) if isinstance(options, Mapping) else options
        values = texts(listed, record.place("goal_options"))
        goal = cls(
            record.get("asin", str),
            record.get("category", str),
            record.get("query", str),
            record.get("name", str),
            record.get("product_category", str),
            record.get("instruction_text", str),
            record.texts("attributes"),
            record.number("price_upper"),
            dict(zip(options, values, strict=True)) if isinstance(options, Mapping) else values,
            record.number("weight") if "weight" in record else 1.0,
        )
        if not goal.attributes:
            raise bad(record.place("attributes"), goal.attributes, "at least one attribute")
        if not goal.price_upper > 0:
            raise bad(record.place("price_upper"), goal.price_upper, "a price above 0")
        return goal


class WeightedDraw:
    """Draw goals by weight as the original does for sessions without a number.

    Its search in the cumulative weights is one place off: a point in the first goal's share gives the second goal, and
    so on; the last goal has two shares, and the first none.

    Args:
        weights_N: float [goals].
    """

    __slots__ = ("_ends",)

    def __init__(self, weights_N: Sequence[float] | NDArray[np.float64]) -> None:
        self._ends = np.concatenate(([0.0], np.cumsum(weights_N)))

    def __call__(self, rng: random.Random) -> int:
        """Return the index of a goal."""
        point = rng.uniform(0, float(self._ends[-1]))
        return min(int(np.searchsorted(self._ends, point, side="right")), len(self._ends) - 2)


def limit_goals(weights_N: Sequence[float] | NDArray[np.float64], limit: int, rng: random.Random) -> list[int]:
    """Return the indices of `limit` goals, drawn by weight without repeats, or of all where there are no more.

    Args:
        weights_N: float [goals].
        limit: How many.
        rng: Where the draws come from.
    """
    if limit >= len(weights_N):
        return list(range(len(weights_N)))
    draw, chosen = WeightedDraw(weights_N), dict[int, None]()
    while len(chosen) < limit:
        chosen[draw(rng)] = None
    return list(chosen)
