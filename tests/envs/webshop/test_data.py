"""Official files are prepared once, unchanged, and opened by name."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.cache import cache_folder
from agentgym_tok.envs.webshop import TitleNouns, WebShopEngine
from agentgym_tok.envs.webshop.data import OFFICIAL, open_shop, prepare, prepared_folder
from agentgym_tok.envs.webshop.generated.shop import write_synth
from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing, MissingExtra


@pytest.fixture
def files(tmp_path: Path, raw: Any) -> list[Path]:
    """Return the three files of a shop of two lamps."""
    entry = {"instruction": "a lamp", "instruction_attributes": ["solid wood"], "instruction_options": []}
    told = {"attributes": ["solid wood"], "instruction": "Find a lamp", "instruction_attributes": ["solid wood"]}
    contents = {
        "items.json": [raw.item(), raw.item("B000000002", name="Other Lamp")],
        "ins.json": {"B000000001": told, "B000000002": {"attributes": ["easy clean"]}},
        "human.json": {"B000000001": [entry, entry]},
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    return [tmp_path / name for name in contents]


@pytest.fixture
def nouns(tmp_path: Path) -> Path:
    file = tmp_path / "tagged.jsonl"
    TitleNouns("by hand", {"Lumora Lamp Set, red": ["lumora", "lamp", "set"], "Other Lamp": ["lamp"]}).save(file)
    return file


def test_official_files_become_a_shop_of_their_name(files: list[Path], nouns: Path, tmp_path: Path) -> None:
    before = [file.read_bytes() for file in files]
    parts: list[str] = []
    done = prepare(
        *files, folder=tmp_path / "shops", nouns=nouns, progress=lambda part, _done, _total: parts.append(part)
    )
    assert [file.read_bytes() for file in files] == before
    assert (done.source, done.nouns) == (OFFICIAL, "by hand")
    assert done.counts == {"products": 2, "synthetic goals": 1, "human goals": 2}
    assert {"products", "synthetic goals"} <= set(parts)
    engine = WebShopEngine(open_shop(tmp_path / "shops", "human", OFFICIAL))
    assert engine.source == "WebShop"
    engine.reset()
    while (command := engine.expert_command()) is not None:
        seen = engine.step(command)
    assert seen.reward == 1.0
    assert open_shop(tmp_path / "shops", "human", OFFICIAL) is open_shop(done.folder, "human", OFFICIAL)


def test_equal_content_is_found_again_and_other_content_is_another_shop(
    files: list[Path], nouns: Path, tmp_path: Path
) -> None:
    def folder() -> Path:
        return prepare(*files, folder=tmp_path / "shops", nouns=nouns).folder

    first = folder()
    stamp = (first / "rows.bin").stat().st_mtime_ns
    files[0].touch()
    assert folder() == first
    assert (first / "rows.bin").stat().st_mtime_ns == stamp
    files[2].write_text("{}", encoding="utf-8")
    second = folder()
    assert second != first
    with pytest.raises(ConfigError, match="several shops are prepared"):
        prepared_folder(tmp_path / "shops")
    assert prepared_folder(second) == second
    with pytest.raises(DataMissing, match="no goal to offer"):
        WebShopEngine(open_shop(second, "human", OFFICIAL))


def test_without_a_tagger_all_but_the_nouns_is_kept(
    files: list[Path], nouns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtra, match="pip install"):
        prepare(*files, folder=tmp_path / "shops")
    shop = prepared_folder(tmp_path / "shops")
    assert prepare(*files, folder=tmp_path / "shops", nouns=nouns).folder == shop
    assert prepare(*files, folder=tmp_path / "shops").nouns == "by hand"


def test_a_broken_file_of_nouns_replaces_no_good_one(files: list[Path], nouns: Path, tmp_path: Path) -> None:
    done = prepare(*files, folder=tmp_path / "shops", nouns=nouns)
    nouns.write_text("[]", encoding="utf-8")
    with pytest.raises(DataCorrupt):
        prepare(*files, folder=tmp_path / "shops", nouns=nouns)
    assert TitleNouns.from_file(done.folder / "nouns.jsonl").model == "by hand"


def test_generated_files_keep_their_own_name_and_need_no_nouns(tmp_path: Path) -> None:
    done = prepare(*write_synth(tmp_path / "raw", 30), folder=tmp_path / "shops")
    assert (done.source, done.nouns, done.counts["products"]) == ("WebShop-synth", None, 30)
    with pytest.raises(ConfigError, match="other products"):
        open_shop(tmp_path / "shops", "synthetic", OFFICIAL)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_file_is_named(files: list[Path], tmp_path: Path, missing: int) -> None:
    files[missing].unlink()
    with pytest.raises(DataMissing) as caught:
        prepare(*files, folder=tmp_path / "shops")
    assert str(files[missing]) in str(caught.value)
    assert not list(tmp_path.glob("shops/*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pricing": "cheap"}, "row 1, field pricing"),
        ({"name": None}, "row 1, field name"),
        ({"customization_options": {"Color": ["red"]}}, "row 1, field customization_options, Color"),
        ({"small_description": 5}, "row 1, field small_description"),
        ({"query": 5}, "row 1, field query"),
    ],
)
def test_a_row_that_does_not_fit_is_named(files: list[Path], tmp_path: Path, raw: Any, change: Any, words: str) -> None:
    files[0].write_text(json.dumps([raw.item(), raw.item("B000000002", **change)]), encoding="utf-8")
    with pytest.raises(DataCorrupt, match=words) as caught:
        prepare(*files, folder=tmp_path / "shops")
    assert str(files[0]) in str(caught.value)
    assert not list(tmp_path.glob("shops/*"))


@pytest.mark.parametrize("content", ["", "5", "[5]", '["title_nouns"]', "{", "no JSON"])
def test_a_file_that_holds_no_products_is_refused(files: list[Path], tmp_path: Path, content: str) -> None:
    files[0].write_text(content, encoding="utf-8")
    with pytest.raises((DataCorrupt, DataMissing)):
        prepare(*files, folder=tmp_path / "shops")


def test_data_is_looked_for_where_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_TOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    assert cache_folder("webshop") == tmp_path / "cache" / "webshop"
    with pytest.raises(DataMissing, match=str(tmp_path / "cache")):
        prepared_folder()
    done = prepare(*write_synth(tmp_path / "raw", 12))
    assert prepared_folder() == done.folder
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(DataMissing, match="elsewhere"):
        prepared_folder()
