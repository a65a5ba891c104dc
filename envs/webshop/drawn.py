"""Prices and goals drawn from a catalogue, as the original draws them."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.webshop.catalogue import Catalogue
from agentgym_tok.envs.webshop.columns import Columns
from agentgym_tok.envs.webshop.goals import Goal
from agentgym_tok.envs.webshop.products import Product
from agentgym_tok.envs.webshop.raw import bad
from agentgym_tok.envs.webshop.shelves import HUMAN, TEMPLATE

__all__ = ["NO_LIMIT", "DrawnGoals", "GoalKind", "draw_goals", "draw_prices", "shuffled"]

GoalKind: TypeAlias = Literal["human", "synthetic"]

NO_LIMIT = 1_000_000.0
"""The price limit of goals that name none."""

_LIMITS = [10.0 * step for step in range(1, 100)]


def draw_prices(catalogue: Catalogue, rng: random.Random) -> NDArray[np.float64]:
    """Return what each product costs: its price, or one drawn between the two that it names.

    Args:
        catalogue: The products.
        rng: Where the draws come from; the original leaves it unseeded.

    Returns:
        float64 [products], in dollars.
    """
    low_N, high_N = (catalogue.columns[name][: len(catalogue)] for name in ("low", "high"))
    prices_N = np.array(low_N, np.float64)
    for index in np.flatnonzero(~np.isnan(high_N)).tolist():
        prices_N[index] = rng.uniform(float(low_N[index]), float(high_N[index]))
    return prices_N


def draw_goals(
    catalogue: Catalogue, prices_N: NDArray[np.float64], kind: GoalKind, rng: random.Random
) -> dict[str, NDArray[Any]]:
    """Draw the price limits of all goals, in the order of the catalogue.

    Args:
        catalogue: The products with their instructions.
        prices_N: float64 [products], in dollars.
        kind: `"human"`: one goal for each instruction with attributes. `"synthetic"`: one for each choice of options
            of each product with a template instruction.
        rng: Where the limits come from; to repeat a seeded original, the generator that drew the prices.

    Returns:
        The columns of `DrawnGoals`: `product` and `choice` int32, `price_upper` and `weight` float64, each [goals].

    Raises:
        DataCorrupt: A template instruction names no attribute.
    """
    draw = _human if kind == "human" else _synthetic
    batches = list(draw(catalogue, prices_N, rng))
    number = np.array([batch.number for batch in batches], np.int64)
    first = np.array([batch.choice for batch in batches], np.int64) - np.cumsum(number) + number
    weights = [1.0] * len(batches) if kind == "human" else _weights(batches)
    columns: dict[str, NDArray[Any]] = {
        "product": np.array([batch.product for batch in batches], np.int32),
        "price_upper": np.array([batch.price_upper for batch in batches], np.float64),
        "weight": np.array(weights, np.float64),
    }
    goals = {name: np.repeat(column, number) for name, column in columns.items()}
    return {**goals, "choice": (np.arange(number.sum()) + np.repeat(first, number)).astype(np.int32)}


def shuffled(goals: Columns, seed: int = 233) -> dict[str, NDArray[Any]]:
    """Put goals in the order that everyone shares, by the original's seed, or in another one."""
    order = list(range(len(goals["product"])))
    random.Random(seed).shuffle(order)  # noqa: S311  an order, no secret
    return {name: column[order] for name, column in goals.items()}


class DrawnGoals(Sequence[Goal]):
    """Offer drawn goals; each is written out when it is asked for.

    Args:
        catalogue: The products that the goals were drawn from.
        columns: What `draw_goals` returned, in the order wanted.
        kind: What was drawn.
    """

    def __init__(self, catalogue: Catalogue, columns: Columns, kind: GoalKind) -> None:
        self._catalogue, self._columns = catalogue, columns
        self._write = _human_goal if kind == "human" else _synthetic_goal

    def __len__(self) -> int:
        return len(self._columns["product"])

    @overload
    def __getitem__(self, index: int) -> Goal: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Goal]: ...
    def __getitem__(self, index: int | slice) -> Goal | Sequence[Goal]:
        """Return a goal, or a list of them."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        of, choice, price_upper, weight = (
            self._columns[name][index].item() for name in ("product", "choice", "price_upper", "weight")
        )
        return self._write(self._catalogue.product(of), choice, price_upper, weight)

    @property
    def weights(self) -> NDArray[np.float64]:
        """float64 [goals], for `WeightedDraw`."""
        return self._columns["weight"]


class _Batch(NamedTuple):
    """Goals that share a product and a price limit, and follow each other."""

    product: int
    choice: int
    number: int
    price_upper: float
    attributes: tuple[str, ...]


def _human(catalogue: Catalogue, prices_N: NDArray[np.float64], rng: random.Random) -> Iterator[_Batch]:
    for index in _told(catalogue, HUMAN):
        for choice, told in enumerate(catalogue.product(index).human_instructions):
            if told.attributes:
                yield _Batch(index, choice, 1, _draw_limit(float(prices_N[index]), rng), told.attributes)


def _synthetic(catalogue: Catalogue, prices_N: NDArray[np.float64], rng: random.Random) -> Iterator[_Batch]:
    for index in _told(catalogue, TEMPLATE):
        product = catalogue.product(index)
        instruction = product.instruction
        assert instruction is not None
        if not instruction.attributes:
            raise bad(f"{product.asin}, field instruction_attributes", [], "at least one for each instruction")
        number = prod(map(len, product.options.values()))
        yield _Batch(index, 0, number, _draw_limit(float(prices_N[index]), rng), instruction.attributes)


def _told(catalogue: Catalogue, bit: int) -> list[int]:
    return np.flatnonzero(catalogue.columns["told"][: len(catalogue)] & bit).tolist()


def _draw_limit(price: float, rng: random.Random) -> float:
    above = [limit for limit in _LIMITS if limit > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def _weights(batches: Sequence[_Batch]) -> list[float]:
    """Return how rare the attributes of each batch are: the mean of 1 / (goals that have the attribute)."""
    goals: Counter[str] = Counter()
    for batch in batches:
        for attribute in batch.attributes:
            goals[attribute] += batch.number
    return [
        sum(1.0 / goals[attribute] for attribute in batch.attributes) / len(batch.attributes) if batch.number else 0.0
        for batch in batches
    ]


def _human_goal(product: Product, choice: int, price_upper: float, weight: float) -> Goal:
    told = product.human_instructions[choice]
    return _goal(product, told.text.strip("."), told.attributes, price_upper, told.options, weight)


def _synthetic_goal(product: Product, choice: int, price_upper: float, weight: float) -> Goal:
    instruction = product.instruction
    assert instruction is not None
    chosen = {}
    # The choices count up as the product of the options does: the last name in order is the fastest.
    for name in sorted(product.options, reverse=True):
        values = product.options[name]
        choice, place = divmod(choice, len(values))
        chosen[name] = values[place]
    options = {name: chosen[name] for name in sorted(chosen)}
    said = ", and ".join(f"{name}: {value}" for name, value in options.items())
    text = f"{instruction.text} with {said}" if said else instruction.text
    return _goal(product, text, instruction.attributes, price_upper, options, weight)


def _goal(
    product: Product,
    text: str,
    attributes: tuple[str, ...],
    price_upper: float,
    options: dict[str, str] | tuple[str, ...],
    weight: float,
) -> Goal:
    price = "" if price_upper == NO_LIMIT else f", and price lower than {price_upper:.2f} dollars"
    return Goal(
        product.asin,
        product.category,
        product.query,
        product.title,
        product.product_category,
        text + price,
        attributes,
        price_upper,
        options,
        weight,
    )
