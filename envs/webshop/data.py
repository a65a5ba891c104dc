"""WebShop's own files: prepared once, kept beside each other, and opened by all environments of a machine."""

import os
import shutil
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentgym_tok.envs.cache import cache_folder
from agentgym_tok.envs.webshop.catalogue import Catalogue
from agentgym_tok.envs.webshop.drawn import GoalKind
from agentgym_tok.envs.webshop.generated.shop import SOURCE as SYNTH
from agentgym_tok.envs.webshop.nouns import TitleNouns, spacy_tagger
from agentgym_tok.envs.webshop.raw import iterate_rows
from agentgym_tok.envs.webshop.shop import Shop
from agentgym_tok.errors import ConfigError, DataMissing

__all__ = ["OFFICIAL", "Prepared", "open_shop", "prepare", "prepared_folder"]

OFFICIAL = "WebShop"
"""The name every score on the official products carries."""

_NOUNS = "nouns.jsonl"
_PREPARE = "run `agentgym-tok data prepare webshop --items FILE --ins FILE --human FILE`"

Progress = Callable[[str, int, int | None], None]
"""Called with what is going on, how much of it is done, and how much there is where that is known."""


class Prepared(NamedTuple):
    """Say what was prepared.

    Args:
        folder: The folder to name as `data`.
        source: The name that scores carry.
        counts: How many products and goals there are, in words.
        nouns: The model that tagged the titles; None where the catalogue carries its own nouns.
    """

    folder: Path
    source: str
    counts: Mapping[str, int]
    nouns: str | None


def prepare(
    items: str | Path,
    attributes: str | Path,
    human: str | Path | None = None,
    *,
    folder: str | Path | None = None,
    nouns: str | Path | None = None,
    progress: Progress = lambda _name, _done, _total: None,
) -> Prepared:
    """Prepare WebShop's raw files, which stay as they are; what was prepared from the same content is found again.

    Titles of goals are tagged for their nouns where the products do not carry them; the titles of other products are
    tagged when they are bought.

    Args:
        items: `items_shuffle*.json`.
        attributes: `items_ins*.json`.
        human: `items_human_ins.json`, for human goals.
        folder: Where the prepared folder will stand; by default `cache_folder("webshop")`.
        nouns: Nouns that somebody else has tagged, in the form of `TitleNouns.save`.
        progress: Called while it goes on.

    Raises:
        DataMissing: A file does not exist.
        DataCorrupt: A file does not fit the schema; the error names file, row and field.
        MissingExtra: Titles must be tagged, and spaCy or its model is not installed. The rest is kept.
    """
    first = next(iterate_rows(Path(items)), None)
    generated = isinstance(first, dict) and "title_nouns" in first
    catalogue = Catalogue.from_files(
        items,
        attributes,
        human,
        cache=Path(folder or cache_folder("webshop")),
        source=SYNTH if generated else OFFICIAL,
        progress=lambda done, total: progress("products", done, total),
    )
    assert catalogue.folder is not None
    counts = {"products": len(catalogue)}
    for kind, name in (("synthetic", "synthetic goals"), ("human", "human goals")):
        progress(name, 0, None)
        counts[name] = len(Shop.drawn(catalogue, kind).goals)  # type: ignore[arg-type]  # one of the two
    model = None if generated else _tag(catalogue, catalogue.folder / _NOUNS, nouns, progress)
    return Prepared(catalogue.folder, catalogue.source, counts, model)


def _tag(catalogue: Catalogue, file: Path, nouns: str | Path | None, progress: Progress) -> str:
    """Tag the titles of all goals, and return the name of the model."""
    if nouns is not None:
        TitleNouns.from_file(nouns)  # so that no broken file replaces a good one
        shutil.copyfile(nouns, file)
    elif not file.is_file():
        TitleNouns(spacy_tagger()[0], {}).save(file)
    told = np.flatnonzero(catalogue.columns["told"][: len(catalogue)]).tolist()
    known = TitleNouns.from_file(file, tagger=spacy_tagger)
    known.tag(
        (catalogue.product(index).title for index in told),
        progress=lambda done, total: progress("titles", done, total),
    )
    return known.model


def prepared_folder(data: str | Path | None = None) -> Path:
    """Find prepared data.

    Args:
        data: The prepared folder, or one that holds a single such folder; None reads the variable `WEBSHOP_DATA`, and
            without it takes `cache_folder("webshop")`.

    Raises:
        DataMissing: Nothing was prepared there.
        ConfigError: There are several to choose from.
    """
    folder = Path(data or os.environ.get("WEBSHOP_DATA") or cache_folder("webshop")).expanduser()
    about = "about.json"
    if (folder / about).is_file():
        return folder
    found = sorted(path.parent for path in folder.glob(f"*/{about}"))
    if not found:
        raise DataMissing("no prepared WebShop data", where=folder, expected=about, fix=_PREPARE)
    if len(found) > 1:
        got = ", ".join(path.name for path in found)
        raise ConfigError("several shops are prepared here", where=folder, got=got, fix="name one of the folders")
    return found[0]


def open_shop(data: str | Path | None, goals: GoalKind, source: str, **seeds: Any) -> Shop:
    """Open a prepared shop; the last ones stay open, for all environments of the process.

    Args:
        data: Where it stands; see `prepared_folder`.
        goals: `"human"` or `"synthetic"`.
        source: What the shop must be: `OFFICIAL` or `WebShop-synth`.
        seeds: Those of `Shop.drawn`.

    Raises:
        DataMissing: Nothing was prepared there.
        ConfigError: It is another shop, or there are several to choose from.
        DataCorrupt: It is broken, or of another version of this library.
    """
    folder = prepared_folder(data)
    shop = _open(folder, goals, tuple(sorted(seeds.items())))
    if shop.catalogue.source != source:
        what, fix = "these are other products than those asked for", "choose another folder, or another source"
        raise ConfigError(what, where=folder, got=shop.catalogue.source, expected=source, fix=fix)
    return shop


@lru_cache(maxsize=4)
def _open(folder: Path, goals: GoalKind, seeds: tuple[tuple[str, Any], ...]) -> Shop:
    file = folder / _NOUNS
    nouns = TitleNouns.from_file(file, tagger=spacy_tagger) if file.is_file() else None
    return Shop.drawn(Catalogue.open(folder), goals, nouns, **dict(seeds))
