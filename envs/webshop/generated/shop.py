"""WebShop-synth: generated products and instructions in WebShop's raw schema, as many as are wanted.

Products come in families of six. The first has relatives that differ from it in one thing alone: an attribute (two of
them), what can be chosen, brand and price, or the kind. Some attributes stand only where no search looks. So a search
finds several that look right, and one or two that are.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

from agentgym_tok.envs.cache import new_folder
from agentgym_tok.envs.draws import Draws
from agentgym_tok.envs.webshop.catalogue import Catalogue
from agentgym_tok.envs.webshop.drawn import GoalKind
from agentgym_tok.envs.webshop.generated.goods import FAMILY, family
from agentgym_tok.envs.webshop.generated.rows import MOST_ROWS, MOST_WORLDS, SynthRow, synth_row
from agentgym_tok.envs.webshop.generated.words import names_of
from agentgym_tok.envs.webshop.shop import Shop
from agentgym_tok.errors import ConfigError

__all__ = ["FILES", "SOURCE", "source_of", "synth_rows", "synth_shop", "write_synth"]

SOURCE = "WebShop-synth"
"""The name every score on generated products carries."""

FILES = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")
"""Names of the three files that hold a shop, as the official ones are called."""


def source_of(world: int) -> str:
    """Return the name that scores in a generated shop carry."""
    return f"{SOURCE}-{world}" if world else SOURCE


def synth_rows(number: int, *, seed: int = 0, world: int = 0) -> Iterator[SynthRow]:
    """Yield so many products; each follows from its place and the rest, so more products begin with the same ones.

    Args:
        number: How many.
        seed: Of the whole catalogue.
        world: Which shop; 0 is the one that scores are about. Others have no id, brand or line of its goods.
    """
    source, names = source_of(world), names_of(world)
    for first in range(0, number, FAMILY):
        members = family(Draws(source, seed, "family", first // FAMILY), names)
        for index, goods in zip(range(first, min(first + FAMILY, number)), members, strict=False):
            yield synth_row(index, goods, Draws(source, seed, "product", index), world)


@lru_cache(maxsize=4)
def synth_shop(goals: GoalKind = "synthetic", *, products: int = 1000, seed: int = 0, world: int = 0) -> Shop:
    """Return a generated shop; the last ones stay in memory, for all environments of the process.

    Args:
        goals: `"synthetic"` (template instructions) or `"human"` (in the manner of people).
        products: How many.
        seed: Of the catalogue, its prices and its goals.
        world: Which shop, see `synth_rows`.

    Raises:
        ConfigError: There cannot be so many products, or there is no such shop.
    """
    return Shop.drawn(_catalogue(products, seed, world), goals, price_seed=seed)


@lru_cache(maxsize=2)
def _catalogue(products: int, seed: int, world: int) -> Catalogue:
    _check(products)
    if not 0 <= world < MOST_WORLDS:
        raise ConfigError("there is no such world", where=SOURCE, got=world, expected=f"0 to {MOST_WORLDS - 1}")
    rows = list(synth_rows(products, seed=seed, world=world))
    asins = [row.item["asin"] for row in rows]
    attributes = dict(zip(asins, (row.attributes for row in rows), strict=True))
    human = dict(zip(asins, (row.human for row in rows), strict=True))
    return Catalogue.from_raw((row.item for row in rows), attributes, human, source=source_of(world))


def write_synth(
    folder: str | Path, number: int, *, seed: int = 0, progress: Callable[[int, int | None], None] | None = None
) -> tuple[Path, Path, Path]:
    """Write a generated shop as the three files that the official one is published as, a product at a time.

    Args:
        folder: Where `FILES` will stand; it must not exist.
        number: How many products.
        seed: Of the whole catalogue.
        progress: Called with the products written so far, and their number.

    Raises:
        ConfigError: The folder is there already, or there cannot be so many products.
    """
    _check(number)
    folder = Path(folder)
    if folder.exists():
        raise ConfigError("the folder is there already", where=folder, fix="choose another one")
    with new_folder(folder) as work:
        streams = [(work / name).open("w", encoding="utf-8") for name in FILES]
        try:
            _write(streams, number, seed, progress)
        finally:
            for stream in streams:
                stream.close()
    items, attributes, human = (folder / name for name in FILES)
    return items, attributes, human


def _write(
    streams: Sequence[IO[str]], number: int, seed: int, progress: Callable[[int, int | None], None] | None
) -> None:
    items, attributes, human = streams
    comma, told_comma = "", ""
    for stream, bracket in zip(streams, "[{{", strict=True):
        stream.write(bracket)
    for done, row in enumerate(synth_rows(number, seed=seed), start=1):
        asin = row.item["asin"]
        items.write(f"{comma}\n{json.dumps(row.item)}")
        attributes.write(f'{comma}\n"{asin}": {json.dumps(row.attributes)}')
        comma = ","
        if row.human:
            human.write(f'{told_comma}\n"{asin}": {json.dumps(row.human)}')
            told_comma = ","
        if progress is not None and (done % 1000 == 0 or done == number):
            progress(done, number)
    for stream, bracket in zip(streams, "]}}", strict=True):
        stream.write(f"\n{bracket}\n")


def _check(number: int) -> None:
    if not 1 <= number <= MOST_ROWS:
        raise ConfigError("no such number of products", where=SOURCE, got=number, expected=f"1 to {MOST_ROWS}")
