"""A shop as one run sees it: a catalogue with its prices, its goals and the nouns of its titles."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.cache import new_folder
from agentgym_tok.envs.webshop.catalogue import Catalogue
from agentgym_tok.envs.webshop.columns import load_columns, save_columns
from agentgym_tok.envs.webshop.drawn import DrawnGoals, GoalKind, draw_goals, draw_prices, shuffled
from agentgym_tok.envs.webshop.goals import Goal
from agentgym_tok.envs.webshop.nouns import TitleNouns
from agentgym_tok.envs.webshop.products import Product
from agentgym_tok.envs.webshop.raw import bad
from agentgym_tok.errors import unknown_name

__all__ = ["Shop"]


@dataclass(frozen=True, slots=True)
class Shop:
    """Hold what all episodes of a run share.

    Args:
        catalogue: The products.
        prices_N: float64 [products], what each costs in dollars.
        goals: All goals, in the order that everyone shares; a goal's index is its id.
        nouns: The nouns of titles for which the catalogue holds none.
        drawn_by: The arguments of `drawn`, where it made the shop; a pickle then carries them instead of all goals.
    """

    catalogue: Catalogue
    prices_N: NDArray[np.float64]
    goals: Sequence[Goal]
    nouns: TitleNouns
    drawn_by: tuple[GoalKind, int, int | None, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.drawn_by is None:
            return type(self), (self.catalogue, self.prices_N, self.goals, self.nouns)
        return _draw_again, (type(self), self.catalogue, self.nouns, *self.drawn_by)

    @classmethod
    def drawn(
        cls,
        catalogue: Catalogue,
        kind: GoalKind,
        nouns: TitleNouns | None = None,
        *,
        price_seed: int = 0,
        goal_seed: int | None = None,
        shuffle_seed: int = 233,
    ) -> Self:
        """Draw prices and goals from seeds; for a catalogue in a folder they are drawn once and kept beside it.

        Args:
            catalogue: The products.
            kind: `"human"` or `"synthetic"` goals.
            nouns: The nouns of titles for which the catalogue holds none.
            price_seed: Seed of the prices, which the original leaves to chance.
            goal_seed: Seed of the price limits. None goes on with the generator of the prices, as the original does
                where it was seeded before it loaded its products.
            shuffle_seed: Seed of the order of the goals; the original's is 233.

        Raises:
            UnknownName: There are no goals of this kind.
            DataCorrupt: A template instruction names no attribute.
        """
        if kind not in ("human", "synthetic"):
            raise unknown_name("kind of goals", kind, ("human", "synthetic"), where="WebShop")

        def draw() -> dict[str, NDArray[Any]]:
            rng = random.Random(price_seed)  # noqa: S311  a game, no secret
            prices_N = draw_prices(catalogue, rng)
            drawn = draw_goals(catalogue, prices_N, kind, rng if goal_seed is None else random.Random(goal_seed))  # noqa: S311
            return {**shuffled(drawn, shuffle_seed), "prices": prices_N}

        if catalogue.folder is None:
            columns = draw()
        else:
            folder = catalogue.folder / f"goals-{kind}-{price_seed}-{goal_seed}-{shuffle_seed}"
            if not folder.is_dir():
                with new_folder(folder) as work:
                    save_columns(work, draw(), {"kind": kind})
            columns, _ = load_columns(folder)
        goals = DrawnGoals(catalogue, columns, kind)
        drawn_by = (kind, price_seed, goal_seed, shuffle_seed)
        return cls(catalogue, columns["prices"], goals, nouns or _no_nouns(), drawn_by)

    @classmethod
    def fixed(
        cls,
        catalogue: Catalogue,
        prices: Mapping[str, float],
        goals: Iterable[Mapping[str, Any]],
        nouns: TitleNouns | None = None,
        *,
        where: str = "goals",
    ) -> Self:
        """Take prices and goals as data, in the original's own form.

        Args:
            catalogue: The products.
            prices: What each product costs in dollars, by asin.
            goals: Mappings of the fields of `Goal`, in order.
            nouns: The nouns of titles for which the catalogue holds none.
            where: The file that they were read from, for errors.

        Raises:
            DataCorrupt: A goal does not fit the schema, or a product has no price.
        """
        known = [Goal.from_mapping(goal, where=f"{where}, goal {number}") for number, goal in enumerate(goals)]
        asins = [catalogue.product(index).asin for index in range(len(catalogue))]
        without = next((asin for asin in asins if asin not in prices), None)
        if without is not None:
            raise bad(f"{where}, prices", f"none for {without}", "a price for each product of the catalogue")
        prices_N = np.array([prices[asin] for asin in asins], np.float64)
        return cls(catalogue, prices_N, known, nouns or _no_nouns())

    def title_nouns(self, product: Product) -> tuple[str, ...]:
        """Return the nouns of a product's title.

        Raises:
            DataMissing: Nobody has tagged it, and there is no tagger.
        """
        return self.nouns(product.title) if product.nouns is None else product.nouns

    def goal_nouns(self, goal: Goal) -> tuple[str, ...]:
        """Return the nouns of a goal's name.

        Raises:
            DataMissing: Nobody has tagged it, and there is no tagger.
        """
        index = self.catalogue.index(goal.asin)
        product = None if index is None else self.catalogue.product(index)
        if product is not None and product.title == goal.name:
            return self.title_nouns(product)
        return self.nouns(goal.name)


def _draw_again(
    cls: type[Shop],
    catalogue: Catalogue,
    nouns: TitleNouns,
    kind: GoalKind,
    price_seed: int,
    goal_seed: int | None,
    shuffle_seed: int,
) -> Shop:
    return cls.drawn(catalogue, kind, nouns, price_seed=price_seed, goal_seed=goal_seed, shuffle_seed=shuffle_seed)


def _no_nouns() -> TitleNouns:
    return TitleNouns("no model", {})
