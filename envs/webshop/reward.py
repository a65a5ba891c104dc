"""The score of a purchase, equal to the original's in every part."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rapidfuzz.fuzz import token_set_ratio
from rapidfuzz.utils import default_process

from agentgym_tok.envs.webshop.goals import Goal
from agentgym_tok.envs.webshop.products import Product

__all__ = ["COLORS", "Reward", "score"]

_COLORS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
wheat white wine yellow
"""
COLORS = tuple(_COLORS.split())
"""The original's colours, in the order in which it looks for them."""

_ALIKE = 85
_LATIN_1 = dict.fromkeys(range(128, 256))


@dataclass(frozen=True, slots=True)
class Reward:
    """Hold a score and its parts, which the original calls by the same names.

    Args:
        score: From 0 to 1: `r_type` times the weighted sum of the other parts.
        r_type: Whether it is the kind of thing that was wanted: 0, 0.1, 0.5 or 1.
        r_att: Share of the wanted attributes.
        w_att: Its weight.
        query_match: Both products were collected by the same search words.
        category_match: They share two categories or more.
        title_score: Share of the goal's nouns that the title holds.
        r_option: Share of the wanted options; None where the goal wants none.
        w_option: Its weight.
        r_price: The price is within the limit.
        w_price: Its weight.
    """

    score: float
    r_type: float
    r_att: float
    w_att: float
    query_match: bool
    category_match: bool
    title_score: float
    r_option: float | None
    w_option: float | None
    r_price: bool
    w_price: float

    def parts(self) -> dict[str, float | bool]:
        """Return what the original reports besides the score."""
        return {name: value for name, value in asdict(self).items() if name != "score" and value is not None}


def score(
    product: Product,
    goal: Goal,
    price: float,
    options: Mapping[str, str],
    *,
    nouns: Sequence[str],
    goal_nouns: Sequence[str],
) -> Reward:
    """Score a purchase.

    Args:
        product: What was bought.
        goal: What was wanted.
        price: What it cost, in dollars.
        options: The values chosen, by name of the option.
        nouns: The nouns of the product's title, in lower case.
        goal_nouns: The nouns of the goal's name.
    """
    wanted = goal.goal_options
    parts = len(goal.attributes) + len(wanted) + 1
    attributes = sum(_has(product, attribute) for attribute in goal.attributes)
    chosen = _count_options(options, wanted)
    fits = price <= goal.price_upper
    query_match = product.query == goal.query
    category_match = len(_categories(product) & _categories(goal)) >= 2
    title_score = len(set(nouns) & set(goal_nouns)) / len(goal_nouns) if goal_nouns else 0.2
    r_type = _kind(title_score, matches=query_match or category_match)
    return Reward(
        (attributes + chosen + fits) / parts * r_type,
        r_type,
        attributes / len(goal.attributes),
        len(goal.attributes) / parts,
        query_match,
        category_match,
        title_score,
        chosen / len(wanted) if wanted else None,
        len(wanted) / parts if wanted else None,
        fits,
        1 / parts,
    )


def _kind(title_score: float, *, matches: bool) -> float:
    # Titles without a common noun count as another kind of thing, even where everything else matches.
    if title_score == 0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if matches or title_score > 0.2 else 0.5


def _categories(thing: Product | Goal) -> set[str]:
    return {name.strip() for name in thing.product_category.split("\u203a")}


def _has(product: Product, attribute: str) -> bool:
    return (
        any(_alike(has, attribute) for has in product.attributes)
        or attribute in product.title.lower()
        or attribute in " ".join(product.features).lower()
        or attribute in product.description.lower()
    )


def _count_options(options: Mapping[str, str], wanted: Mapping[str, str] | Sequence[str]) -> int:
    chosen = [_normalized(value) for value in options.values()]
    # Wanted by name, options are pairs to the original: a colour must equal one of the pair to replace it, and what
    # is compared is the printed pair.
    goals = wanted.items() if isinstance(wanted, Mapping) else wanted
    return sum(any(_alike(value, goal) for value in chosen) for goal in map(_normalized, goals))


def _normalized(value: str | tuple[str, str]) -> str:
    """Return the first colour that a value contains, or the value: "tan" for "standard" too."""
    return next((color for color in COLORS if color in value), str(value))


def _alike(one: str, other: str) -> bool:
    """Say whether two texts match by thefuzz's `token_set_ratio` of release 0.20 or later."""
    return round(token_set_ratio(_plain(one), _plain(other))) > _ALIKE


def _plain(text: str) -> str:
    return default_process(text.translate(_LATIN_1))
