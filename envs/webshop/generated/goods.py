"""What generated products are, before they are written out: families of six that are easily mistaken for each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agentgym_tok.envs.draws import Draws
from agentgym_tok.envs.webshop.generated.words import KINDS, OPTION_VALUES, USES, Kind, Names

__all__ = ["FAMILY", "Goods", "family", "some"]

FAMILY = 6
"""How many products make a family."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Goods:
    """Hold what a product is.

    Args:
        kind: The kind of goods.
        brand: Who makes it.
        line: Its name within the brand.
        use: What it is for.
        attributes: What it has; the title names the first two.
        options: Values to choose from, by the name of the option, as raw files write them.
        cents: The price.
    """

    kind: Kind
    brand: str
    line: str
    use: str
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    cents: int


def family(draws: Draws, names: Names) -> Iterator[Goods]:
    """Yield six products that are easily mistaken for each other: one, and five that differ from it in one thing.

    Args:
        draws: Those of the family.
        names: What goods are called.
    """
    kind = draws.pick(KINDS)
    aisle = kind.aisle
    first = Goods(
        kind,
        draws.pick(names.brands),
        draws.pick(names.lines),
        draws.pick(USES[aisle.category]),
        some(draws, aisle.attributes, draws.between(3, 5)),
        _choices(draws, kind),
        100 * draws.between(*aisle.prices) - draws.pick((1, 5, 50, 100)),
    )
    yield first
    lacking = [attribute for attribute in aisle.attributes if attribute not in first.attributes]
    for place in some(draws, range(len(first.attributes)), 2):
        has = [*first.attributes]
        has[place] = draws.pick(lacking)
        yield replace(first, attributes=tuple(has))
    yield replace(first, options=_choices(draws, kind))
    # Dearer than any limit that the first one's goals name: these are at most 40 dollars above its price.
    yield replace(first, brand=draws.pick(names.brands), cents=first.cents + 100 * draws.between(41, 90))
    others = [other for other in KINDS if other.aisle is aisle and other is not kind]
    yield replace(first, kind=draws.pick(others), cents=first.cents + 100 * draws.between(0, 3))


def _choices(draws: Draws, kind: Kind) -> dict[str, tuple[str, ...]]:
    """Return what can be chosen: nothing, or two to five values of some options."""
    if draws.chance(0.2):
        return {}
    keys = some(draws, kind.aisle.options, draws.between(1, min(2, len(kind.aisle.options))))
    chosen = {}
    for key in keys:
        name, values = OPTION_VALUES[key]
        chosen[name] = some(draws, values, draws.between(2, min(5, len(values))))
    return chosen


def some(draws: Draws, items: Sequence[T], number: int) -> tuple[T, ...]:
    """Return so many different ones of the items, in any order."""
    left = list(items)
    return tuple(left.pop(draws.between(0, len(left) - 1)) for _ in range(number))
