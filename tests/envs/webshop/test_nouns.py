import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.webshop import TitleNouns, spacy_tagger
from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing, MissingExtra

TAGGED: list[str] = []


def tag(title: str) -> Sequence[str]:
    TAGGED.append(title)
    return title.lower().split()


def load() -> tuple[str, Any]:
    return "words 1", tag


def load_other() -> tuple[str, Any]:
    return "words 2", tag


@pytest.fixture(autouse=True)
def nothing_tagged() -> None:
    TAGGED.clear()


def test_known_titles_are_never_tagged() -> None:
    nouns = TitleNouns("words 1", {"Red Lamp": ["lamp"], "": []}, tagger=load)
    assert (nouns("Red Lamp"), nouns(""), TAGGED) == (("lamp",), (), [])


def test_new_titles_are_tagged_once_and_added_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "nouns.jsonl"
    TitleNouns("words 1", {"Red Lamp": ["lamp"]}).save(file)
    nouns = TitleNouns.from_file(file, tagger=load)
    assert nouns("Oak\nDesk \ud800") == nouns("Oak\nDesk \ud800") == ("oak", "desk", "\ud800")
    assert len(TAGGED) == 1
    again = TitleNouns.from_file(file)
    assert (again.model, len(again)) == ("words 1", 2)
    assert again("Oak\nDesk \ud800") == ("oak", "desk", "\ud800")


def test_many_titles_are_tagged_with_progress() -> None:
    seen: list[tuple[int, int | None]] = []
    nouns = TitleNouns("words 1", {"a": []}, tagger=load)
    assert nouns.tag(["a", "b", "c", "b"], progress=lambda *told: seen.append(told)) == 2
    assert (TAGGED, seen) == (["b", "c"], [(1, 2), (2, 2)])


def test_a_title_that_nobody_tagged_is_refused_with_the_next_step() -> None:
    with pytest.raises(DataMissing, match="pip install") as caught:
        TitleNouns("words 1", {})("Oak Desk")
    assert "'Oak Desk'" in str(caught.value)


def test_nouns_of_two_models_do_not_mix() -> None:
    with pytest.raises(ConfigError, match="words 2"):
        TitleNouns("words 1", {}, tagger=load_other)("Oak Desk")


def test_nouns_go_to_other_processes(tmp_path: Path) -> None:
    file = tmp_path / "nouns.jsonl"
    TitleNouns("words 1", {}).save(file)
    nouns = TitleNouns.from_file(file, tagger=load)
    nouns("a")
    copy = pickle.loads(pickle.dumps(nouns))
    assert (copy("a"), copy("b"), nouns.model) == (("a",), ("b",), copy.model)
    assert len(TitleNouns.from_file(file)) == 2


@pytest.mark.parametrize("content", ["", "{}\n", '{"model": "m"}\n{"title": "a"}\n', '{"model": "m"}\n["a"]\n'])
def test_a_broken_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "nouns.jsonl"
    file.write_text(content)
    with pytest.raises(DataCorrupt, match=r"nouns\.jsonl"):
        TitleNouns.from_file(file)
    with pytest.raises(DataMissing):
        TitleNouns.from_file(tmp_path / "none.jsonl")


def test_tagging_without_spacy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtra, match="pip install 'agentgym-tok"):
        spacy_tagger()


def test_spacy_finds_the_recorded_nouns(golden: dict[str, Any]) -> None:
    pytest.importorskip("spacy")
    try:
        model, found = spacy_tagger()
    except MissingExtra as missing:
        pytest.skip(str(missing))
    if not model.endswith("3.8.0"):
        pytest.skip(f"the records are of 3.8.0, installed is {model}")
    for title, nouns in golden["title_nouns"].items():
        assert found(title) == nouns
