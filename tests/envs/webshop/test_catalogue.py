import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym_tok.envs.webshop import Catalogue, Product
from agentgym_tok.envs.webshop.columns import save_columns
from agentgym_tok.errors import DataCorrupt, DataMissing


def parts(product: Product) -> list[Any]:
    return [getattr(product, name) for name in Product.__slots__]


def same(one: Catalogue, other: Catalogue) -> bool:
    assert one.columns.keys() == other.columns.keys()
    assert (one.source, len(one)) == (other.source, len(other))
    return all(
        np.array_equal(column, other.columns[name], equal_nan=name == "high") for name, column in one.columns.items()
    )


@pytest.fixture
def files(tmp_path: Path, raw: Any) -> list[Path]:
    told = {"instruction": "find it.", "instruction_attributes": ["a"], "instruction_options": []}
    rows = [raw.item(f"B{number}", name=f"Lamp {number}", pricing=f"${number}") for number in (3, 1, 2)]
    contents = [rows, {"B1": {"attributes": ["red"]}}, {"B2": [told]}]
    paths = [tmp_path / name for name in ("items.json", "ins.json", "human.json")]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    return paths


def test_files_are_prepared_once_and_equal_what_is_made_in_memory(files: list[Path], tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    made = Catalogue.from_files(*files, cache=tmp_path / "cache", progress=lambda *told: seen.append(told))
    assert seen == [(1, None), (2, None), (3, None)]
    again = Catalogue.from_files(*files, cache=tmp_path / "cache", progress=lambda *told: seen.append(told))
    assert len(seen) == 3
    items, attributes, human = (json.loads(path.read_bytes()) for path in files)
    memory = Catalogue.from_raw(items, attributes, human)
    assert same(made, memory)
    assert same(again, memory)
    assert [parts(made.product(index)) for index in range(3)] == [parts(memory.product(index)) for index in range(3)]


def test_another_content_is_another_catalogue(files: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made = Catalogue.from_files(*files, cache=cache)
    for path in files:
        path.write_text(path.read_text() + "\n")
        Catalogue.from_files(*files, cache=cache)
    others = [
        Catalogue.from_files(*files[:2], cache=cache),
        Catalogue.from_files(*files, cache=cache, num_products=2),
        Catalogue.from_files(*files, cache=cache, source="mine"),
    ]
    assert len(list(cache.iterdir())) == 7
    assert (len(others[1]), others[2].source, made.source) == (2, "mine", "WebShop")


def test_an_interrupted_preparation_leaves_nothing(files: list[Path], tmp_path: Path) -> None:
    files[0].write_text(files[0].read_text()[:-5])
    with pytest.raises(DataCorrupt, match="row 2"):
        Catalogue.from_files(*files, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_missing_files_are_named(files: list[Path], tmp_path: Path) -> None:
    for number in range(3):
        paths: list[Any] = [*files]
        paths[number] = tmp_path / "none.json"
        with pytest.raises(DataMissing, match=r"none\.json"):
            Catalogue.from_files(*paths, cache=tmp_path / "cache")
    with pytest.raises(DataMissing):
        Catalogue.open(tmp_path / "cache")
    with pytest.raises(DataMissing, match="at least one"):
        Catalogue.from_raw([], {})


def test_data_of_another_version_are_refused(files: list[Path], tmp_path: Path) -> None:
    made = Catalogue.from_files(*files, cache=tmp_path / "cache")
    assert made.folder is not None
    about = json.loads((made.folder / "about.json").read_bytes())
    save_columns(made.folder, {}, {**about, "format": 0})
    with pytest.raises(DataCorrupt, match="format 0"):
        Catalogue.open(made.folder)
    save_columns(made.folder, {}, about)
    (made.folder / "counts.npy").unlink()
    with pytest.raises(DataCorrupt, match="no 'counts'"):
        Catalogue.open(made.folder)


def test_a_prepared_catalogue_is_pickled_by_its_path_and_one_in_memory_whole(files: list[Path], tmp_path: Path) -> None:
    made = Catalogue.from_files(*files, cache=tmp_path / "cache")
    made.product(0)
    made.search.find("lamp")
    data = pickle.dumps(made)
    assert len(data) < 1000
    assert same(pickle.loads(data), made)
    memory = Catalogue.from_products([made.product(2), made.product(0)], source="two")
    copy = pickle.loads(pickle.dumps(memory))
    assert same(copy, memory)
    assert [copy.product(index).asin for index in range(2)] == ["B2", "B3"]


def test_products_are_found_by_asin(files: list[Path], tmp_path: Path) -> None:
    made = Catalogue.from_files(*files, cache=tmp_path / "cache")
    assert [made.index(asin) for asin in ("B1", "B2", "B3", "B", "B4", "")] == [1, 2, 0, None, None, None]
    assert Catalogue.from_files(*files, cache=tmp_path / "cache", num_products=2).index("B2") is None


def test_products_are_kept_as_objects_up_to_a_bound(files: list[Path], tmp_path: Path) -> None:
    made = Catalogue.from_files(*files, cache=tmp_path / "cache")
    assert made.product(0) is made.product(0)
    assert made._product.cache_info().maxsize == 4096
    with pytest.raises(IndexError):
        made.product(3)


def test_an_index_holds_as_many_products_as_rows_were_asked_for(raw: Any) -> None:
    rows = [raw.item("nan") for _ in range(20)] + [
        raw.item(f"B{number:03}", name="Lamp") for number in range(99, -1, -1)
    ]
    catalogue = Catalogue.from_raw(rows, {}, num_products=80)
    # Of the first 80 rows 60 are products, but 80 products are indexed: 20 hits are not in the shop.
    assert (len(catalogue), len(catalogue.search.find("lamp"))) == (60, 50)
    found = catalogue.find(["lamp"], "")
    assert found is not None
    assert [catalogue.product(index).asin for index in found.tolist()] == [f"B{number:03}" for number in range(40, 70)]
    assert catalogue.index("B020") is None
    assert (catalogue.find(["<c>", "garden"], "") == range(60)).all()
    assert set(catalogue.find(["<r>"], "1")) <= set(range(60))


def test_a_draw_depends_on_its_lot_alone(raw: Any) -> None:
    catalogue = Catalogue.from_raw([raw.item(f"B{number}") for number in range(90)], {})
    draws = [tuple(catalogue.find(["<r>"], lot)) for lot in ("a", "b", "a")]
    assert draws[0] == draws[2] != draws[1]
    assert len(set(draws[0])) == 50
    assert draws[0] == tuple(random.Random("a").sample(range(90), 50))
