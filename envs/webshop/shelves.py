"""Put products on shelves: their texts into one file, and all that is looked up among them into columns."""

from array import array
from collections.abc import Callable, Iterable
from math import nan
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.webshop.lookup.postings import PostingsWriter
from agentgym_tok.envs.webshop.products import Product
from agentgym_tok.errors import DataMissing

__all__ = ["FORMAT", "HUMAN", "TEMPLATE", "Progress", "collect"]

Progress = Callable[[int, int | None], None]
"""Called with the products done so far, and their number where it is known."""

FORMAT = 1
"""Version of the columns; prepared data of another one are refused."""

TEMPLATE, HUMAN = 1, 2
"""Bits of the column `told`: the product has a template instruction, or human ones."""


def collect(
    rows: Iterable[tuple[int, Product]], file: BinaryIO, num_products: int | None, progress: Progress | None = None
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Write products to a file, and return the columns of a catalogue and what is to say about them.

    Beside the index the columns are `row_ends` int64 (where each product's row ends in the file), `asins` str,
    `by_asin` and `ranks` int32 (their order, and the place of each in it), `category` and `query` int32 (places in the
    lists of `about`), `low` and `high` float64 (prices in dollars; `high` is nan where there is one price), and `told`
    uint8 (which instructions there are), each [products].

    Args:
        rows: Products and the numbers of their rows.
        file: Where to write.
        num_products: Take only this many rows, and index as many products.
        progress: Called after each product.

    Raises:
        DataMissing: There is no product.
    """
    index = PostingsWriter()
    asins: list[str] = []
    ends, low, high, told = array("q"), array("d"), array("d"), array("B")
    codes: dict[str, tuple[array[int], dict[str, int]]] = {name: (array("i"), {}) for name in ("category", "query")}
    shown, end = 0, 0
    for number, product in rows:
        if len(asins) == num_products:
            break
        asins.append(product.asin)
        shown += num_products is None or number < num_products
        end += file.write(product.to_row())
        ends.append(end)
        low.append(product.pricing[0])
        high.append(product.pricing[1] if len(product.pricing) > 1 else nan)
        told.append(TEMPLATE * (product.instruction is not None) + HUMAN * bool(product.human_instructions))
        for name, (column, known) in codes.items():
            column.append(known.setdefault(getattr(product, name), len(known)))
        index.add(product.document)
        if progress is not None:
            progress(len(asins), num_products)
    if not shown:
        raise DataMissing("a shop needs products", got="none", expected="at least one", fix="check the items file")
    names = np.array(asins)
    by_asin = np.argsort(names, kind="stable").astype(np.int32)
    ranks = np.empty_like(by_asin)
    ranks[by_asin] = np.arange(len(by_asin), dtype=np.int32)
    columns: dict[str, NDArray[Any]] = {
        **index.columns(),
        **{name: np.array(column) for name, (column, _) in codes.items()},
        "row_ends": np.array(ends),
        "asins": names,
        "by_asin": by_asin,
        "ranks": ranks,
        "low": np.array(low),
        "high": np.array(high),
        "told": np.array(told),
    }
    about = {name: list(known) for name, (_, known) in codes.items()}
    return columns, {**about, "format": FORMAT, "products": shown}
