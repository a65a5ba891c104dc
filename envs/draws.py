"""Draw the same things from the same key on every machine and Python version."""

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

__all__ = ["Draws"]

T = TypeVar("T")


class Draws:
    """Make random choices that depend on a key alone.

    Only `Random.random` of a string seed is used: it is the one stream that Python promises to keep, while `choice`
    and `shuffle` may consume it differently in another version.

    Args:
        key: What the choices belong to, such as a split and an index.
    """

    __slots__ = ("_next",)

    def __init__(self, *key: object) -> None:
        self._next = random.Random("/".join(map(str, key))).random  # noqa: S311  games, not secrets

    def chance(self, share: float) -> bool:
        """Return True in `share` of all cases."""
        return self._next() < share

    def between(self, least: int, most: int) -> int:
        """Return a whole number from `least` to `most`, both included."""
        return least + int(self._next() * (most - least + 1))

    def pick(self, items: Sequence[T]) -> T:
        """Return one item, each with equal weight."""
        return items[int(self._next() * len(items))]

    def weighted(self, weights: Mapping[T, int]) -> T:
        """Return one key, each with its own weight; a weight of 0 is never drawn."""
        left = int(self._next() * sum(weights.values()))
        for item, weight in weights.items():
            left -= weight
            if left < 0:
                return item
        raise ValueError("nothing to draw from")
