"""All products of a shop and their index: immutable, and one for all environments of a machine."""

import hashlib
import random
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.cache import new_folder
from agentgym_tok.envs.webshop.columns import Columns, Rows, load_columns, save_columns
from agentgym_tok.envs.webshop.digests import file_digest
from agentgym_tok.envs.webshop.lookup.search import MOST_HITS, Search
from agentgym_tok.envs.webshop.products import FileNames, Product, read_products
from agentgym_tok.envs.webshop.raw import iterate_rows, read_object
from agentgym_tok.envs.webshop.shelves import FORMAT, Progress, collect
from agentgym_tok.errors import DataCorrupt

__all__ = ["Catalogue"]

_KEPT = 4096


class Catalogue:
    """Offer the products of a shop by their index, and search them.

    A catalogue is made once from raw data (`from_files`, `from_raw`, `from_products`). One that stands in a folder is
    mapped, not loaded: processes share its memory, and pickles carry only its path.

    Args:
        columns: The products and their index, as `from_products` makes them.
        about: What the columns are: source, categories, queries.
        folder: Where the columns stand; None for those that live in memory.
    """

    def __init__(self, columns: Columns, about: Mapping[str, Any], folder: Path | None = None) -> None:
        self.folder = folder
        self.source: str = about["source"]
        """The name every score carries, such as `"WebShop"`."""
        self.columns = columns
        self._about = about
        self._size: int = about["products"]
        self._rows = Rows(columns["rows"], columns["row_ends"])
        self._codes = {name: {text: code for code, text in enumerate(about[name])} for name in ("category", "query")}
        self.search = Search(columns, columns["ranks"])
        self._product = lru_cache(maxsize=_KEPT)(lambda index: Product.from_row(self._rows[index]))

    @classmethod
    def from_files(
        cls,
        items: str | Path,
        attributes: str | Path,
        human: str | Path | None = None,
        *,
        cache: str | Path,
        num_products: int | None = None,
        source: str = "WebShop",
        progress: Progress | None = None,
    ) -> Self:
        """Prepare WebShop's own files, or find what was prepared from the same ones before.

        Args:
            items: `items_shuffle*.json`.
            attributes: `items_ins*.json`.
            human: `items_human_ins.json`, for human goals.
            cache: The prepared data go into a folder in it, named by the digest of all three files.
            num_products: Take only the first rows; see `from_raw`.
            source: The name every score carries.
            progress: Called while products are prepared.

        Raises:
            DataMissing: A file does not exist.
            DataCorrupt: A file does not fit the schema; the error names file, row and field.
        """
        paths = [Path(path) for path in (items, attributes, human) if path is not None]
        digests = [file_digest(path, Path(cache)) for path in paths]
        key = [FORMAT, num_products, source, *digests]
        folder = Path(cache, hashlib.sha256(repr(key).encode()).hexdigest()[:32])
        if not folder.is_dir():
            names = FileNames(*map(str, paths))
            told = read_object(paths[2]) if human is not None else {}
            rows = read_products(iterate_rows(paths[0]), read_object(paths[1]), told, names=names)
            with new_folder(folder) as work, (work / "rows.bin").open("wb") as file:
                columns, about = collect(rows, file, num_products, progress)
                inputs = {path.name: digest for path, digest in zip(paths, digests, strict=True)}
                save_columns(work, columns, {**about, "source": source, "inputs": inputs})
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Map a catalogue that was prepared before.

        Raises:
            DataMissing: It is not there.
            DataCorrupt: It is broken, or of another version of this library.
        """
        columns, about = load_columns(Path(folder))
        if about.get("format") != FORMAT:
            raise DataCorrupt(
                "prepared WebShop data of another version",
                where=folder,
                got=f"format {about.get('format')}",
                expected=f"format {FORMAT}",
                fix="prepare the data again",
            )
        try:
            return cls(columns, about, Path(folder).absolute())
        except KeyError as error:
            fix = "remove the folder and prepare the data again"
            raise DataCorrupt(
                "prepared WebShop data are incomplete", where=folder, got=f"no {error}", fix=fix
            ) from error

    @classmethod
    def from_raw(
        cls,
        items: Iterable[Any],
        attributes: Mapping[str, Any],
        human: Mapping[str, Any] | None = None,
        *,
        num_products: int | None = None,
        source: str = "WebShop",
    ) -> Self:
        """Make a catalogue in memory from the contents of raw files.

        Args:
            items: Rows of `items_*.json`.
            attributes: Content of `items_ins*.json`.
            human: Content of `items_human_ins.json`.
            num_products: Take only this many rows. As in the original, the index then holds as many products, even
                though some of the rows are left out: they take places among the 50 hits, and are not shown.
            source: The name every score carries.

        Raises:
            DataCorrupt: A row does not fit the schema.
        """
        return cls._in_memory(read_products(items, attributes, human or {}), num_products, source)

    @classmethod
    def from_products(cls, products: Iterable[Product], *, source: str) -> Self:
        """Make a catalogue in memory from products."""
        return cls._in_memory(enumerate(products), None, source)

    @classmethod
    def _in_memory(cls, rows: Iterable[tuple[int, Product]], num_products: int | None, source: str) -> Self:
        file = BytesIO()
        columns, about = collect(rows, file, num_products)
        data = np.frombuffer(file.getvalue(), np.uint8)
        return cls({**columns, "rows": data}, {**about, "source": source})

    def __len__(self) -> int:
        return self._size

    def __reduce__(self) -> tuple[Any, ...]:
        if self.folder is not None:
            return type(self).open, (self.folder,)
        return type(self), (self.columns, self._about)

    def product(self, index: int) -> Product:
        """Return a product; the last ones are kept as objects."""
        return self._product(index)

    def index(self, asin: str) -> int | None:
        """Return the index of a product, or None where the shop has none of this asin."""
        asins, by_asin = self.columns["asins"], self.columns["by_asin"]
        place = bisect_left(by_asin, asin, key=lambda index: asins[index])
        index = int(by_asin[place]) if place < len(by_asin) else self._size
        return index if index < self._size and asins[index] == asin else None

    def find(self, keywords: Sequence[str], lot: str) -> NDArray[np.int32] | None:
        """Return the products that a search finds, best first.

        The first word may say how to search: `<r>` draws 50 products, `<c> NAME` lists a department, `<q> WORDS` the
        products that were collected by these words.

        Args:
            keywords: The words of the search.
            lot: What a draw depends on.

        Returns:
            Indices of products, or None for what makes the original fail: `<a>`, and `<c>` alone.
        """
        if keywords[0] == "<r>":
            lots = random.Random(lot).sample(range(self._size), min(MOST_HITS, self._size))  # noqa: S311  no secret
            return np.array(lots, np.int32)
        if keywords[0] == "<c>":
            return self._listed("category", keywords[1].strip()) if len(keywords) > 1 else None
        if keywords[0] == "<q>":
            return self._listed("query", " ".join(keywords[1:]).strip())
        if keywords[0] == "<a>":
            return None
        hits = self.search.find(" ".join(keywords))
        return hits if len(self._rows) == self._size else hits[hits < self._size]

    def _listed(self, column: str, text: str) -> NDArray[np.int32]:
        code = self._codes[column].get(text, -1)
        return np.flatnonzero(self.columns[column][: self._size] == code).astype(np.int32)
