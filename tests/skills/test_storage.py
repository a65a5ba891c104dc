"""Both file formats give back what they got, and say what is wrong with a file and where."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing, UnknownName
from agentgym_tok.skills import SHIPPED, Category, Mistake, Skill, SkillBank, load_bank, save_bank
from agentgym_tok.skills.items import read_items

# What could be taken for markdown, comments and labels stands among all other text.
_PIECES = st.sampled_from(
    ["**", "*", "\\", ": ", ":", "# ", "1. ", "- ", "When: ", "Why: ", "<!-- ", " -->", "\n", "x"]
)
_TEXT = st.lists(_PIECES | st.text(max_size=5), max_size=6).map("".join)
_SAID = _TEXT.map(lambda text: f"{text}x")
_NAME = st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=8).map(lambda name: f"c{name}")
_IDS = st.lists(st.text(max_size=5), max_size=2).map(tuple)


def _skills() -> st.SearchStrategy[tuple[Skill, ...]]:
    made = st.builds(Skill, skill_id=_SAID, title=_TEXT, principle=_SAID, when_to_apply=_TEXT, episodes=_IDS)
    return st.lists(made, max_size=3, unique_by=lambda skill: skill.skill_id).map(tuple)


_CATEGORY = st.builds(Category, name=_NAME, skills=_skills(), keywords=st.lists(_SAID, max_size=2).map(tuple))
_MISTAKES = st.builds(Mistake, mistake_id=_SAID, description=_SAID, why_it_happens=_TEXT, how_to_avoid=_SAID)
_BANKS = st.builds(
    SkillBank,
    general_skills=_skills(),
    categories=st.lists(_CATEGORY, max_size=3, unique_by=lambda one: one.name.casefold()).map(tuple),
    common_mistakes=st.lists(_MISTAKES, max_size=2, unique_by=lambda one: one.mistake_id).map(tuple),
    metadata=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), st.integers(0, 9), max_size=2),
)
_SLOW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@given(bank=_BANKS, key=st.sampled_from(["task_specific_skills", "query_type_skills"]))
@_SLOW
def test_json_gives_back_what_it_got(tmp_path: Path, bank: SkillBank, key: Any) -> None:
    save_bank(bank, tmp_path / "bank.json", key=key)
    assert load_bank(tmp_path / "bank.json") == bank
    assert key in json.loads((tmp_path / "bank.json").read_text(encoding="utf-8"))


@given(bank=_BANKS)
@_SLOW
def test_markdown_gives_back_what_it_got(tmp_path: Path, bank: SkillBank) -> None:
    save_bank(bank, tmp_path / "bank", "markdown")
    assert load_bank(tmp_path / "bank") == bank


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_bank_passes_through_both_formats(name: str, tmp_path: Path) -> None:
    bank = load_bank(name)
    save_bank(bank, tmp_path / "bank", "markdown")
    save_bank(load_bank(tmp_path / "bank"), tmp_path / "bank.json")
    assert load_bank(tmp_path / "bank.json") == bank


def test_a_comment_in_markdown_ends_where_it_should(tmp_path: Path) -> None:
    skill = Skill(skill_id="a --> b", principle="p", episodes=("-->",))
    save_bank(SkillBank(general_skills=(skill,)), tmp_path, "markdown")
    assert (tmp_path / "general_skills.md").read_text(encoding="utf-8").count("-->") == 1
    assert load_bank(tmp_path).general_skills == (skill,)


def test_the_published_json_is_read_with_either_key_or_both(tmp_path: Path) -> None:
    # The fields of SkillRL's files, and one that other programs may add.
    skill = {"skill_id": "s", "title": "T", "principle": "P", "when_to_apply": "W", "score": 1}
    mistake = {"mistake_id": "m", "description": "D", "why_it_happens": "Y", "how_to_avoid": "H"}
    content = {
        "general_skills": [skill],
        "task_specific_skills": {"clean": [skill]},
        "query_type_skills": {"comparison": [skill]},
        "common_mistakes": [mistake],
        "metadata": {"source": "somewhere", "total_memories_analyzed": 3},
    }
    (tmp_path / "bank.json").write_text(json.dumps(content), encoding="utf-8")
    bank = load_bank(tmp_path / "bank.json")
    held = Skill(skill_id="s", title="T", principle="P", when_to_apply="W")
    assert bank.general_skills == (held,)
    assert [(one.name, one.skills, one.types) for one in bank.categories] == [
        ("clean", (held,), ("clean",)),
        ("comparison", (held,), ("comparison",)),
    ]
    assert bank.metadata == {"source": "somewhere", "total_memories_analyzed": 3}


def test_the_published_markdown_is_read(tmp_path: Path) -> None:
    mapping = {
        "skill_files": {"general_skills": "general_skills.md", "shoes": "shoes.md", "rest": "rest.md"},
        "task_to_skill": {"pick_shoes": "shoes", "pick_two_shoes": "shoes", "rest": "rest"},
        "task_keywords": {"pick_shoes": ["shoe", "boot"], "pick_two_shoes": ["boot", "pair"], "rest": []},
    }
    (tmp_path / "skill_mapping.json").write_text(json.dumps(mapping), encoding="utf-8")
    (tmp_path / "general_skills.md").write_text("Be brief.\nBe kind.\n", encoding="utf-8")
    (tmp_path / "rest.md").write_text("# Nothing yet\n", encoding="utf-8")
    (tmp_path / "shoes.md").write_text(
        "### TASK: shoes ###\n\nFor this task, do as follows:\n\n"
        "1. Look Twice: Read it: all of it. Apply this always.\n\n2. Go\n   on.\n\n- **Stop:** now\n",
        encoding="utf-8",
    )
    bank = load_bank(tmp_path)
    assert [skill.principle for skill in bank.general_skills] == ["Be brief. Be kind."]
    shoes, rest = bank.categories
    assert [(skill.title, skill.principle) for skill in shoes.skills] == [
        ("Look Twice", "Read it: all of it. Apply this always."),
        ("", "Go on."),
        ("Stop", "now"),
    ]
    assert (shoes.types, shoes.keywords) == (("pick_shoes", "pick_two_shoes"), ("shoe", "boot", "pair"))
    assert (rest.skills, rest.types, rest.keywords) == ((), ("rest",), ())


def test_a_comment_for_people_is_left_out() -> None:
    (item,) = read_items("<!-- by hand -->\n1. **A**: b\n   <!-- not json -->\n   <!-- [1] -->\n")
    assert (item.title, item.text, item.note) == ("A", "b", {})


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no JSON object"),
        ('{"general_skill": []}', "general_skill"),
        ('{"general_skills": [{"skill_id": "a"}]}', "general_skills.0.principle"),
        ('{"general_skills": [{"skill_id": 1, "principle": "p"}]}', "general_skills.0.skill_id"),
        ('{"task_specific_skills": {"a/b": []}}', "name"),
        ('{"task_specific_skills": {"a": []}, "query_type_skills": {"a": []}}', "stands twice"),
        ('{"matching": {"a": {}}}', "matching"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_wrong_json_is_refused_by_file_and_place(tmp_path: Path, content: str | bytes, place: str) -> None:
    file = tmp_path / "bank.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataCorrupt) as caught:
        load_bank(file)
    assert place in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("mapping", "place"),
    [
        ({}, "skill_files"),
        ({"skill_files": {"a": "../a.md"}}, "skill_files.a"),
        ({"skill_files": {"a": "a.md"}, "task_to_skill": {"t": "b"}}, "task_to_skill"),
        ({"skill_files": {"a": "a.md"}, "task_keywords": {"t": ["b"]}}, "task_keywords"),
        ({"skill_files": {"a": "a.md"}, "task_to_skil": {}}, "task_to_skil"),
    ],
)
def test_a_wrong_mapping_is_refused_by_file_and_place(tmp_path: Path, mapping: dict[str, Any], place: str) -> None:
    (tmp_path / "a.md").write_text("1. A: b\n", encoding="utf-8")
    (tmp_path / "skill_mapping.json").write_text(json.dumps(mapping), encoding="utf-8")
    with pytest.raises(DataCorrupt) as caught:
        load_bank(tmp_path)
    assert place in str(caught.value)
    assert "skill_mapping.json" in str(caught.value)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"bank\.json"):
        load_bank(tmp_path / "bank.json")
    with pytest.raises(DataMissing, match=r"skill_mapping\.json"):
        load_bank(tmp_path)
    (tmp_path / "skill_mapping.json").write_text('{"skill_files": {"a": "a.md"}}', encoding="utf-8")
    with pytest.raises(DataMissing, match=r"a\.md"):
        load_bank(tmp_path)
    with pytest.raises(UnknownName, match="did you mean alfworld"):
        load_bank("alfwrld")


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, bank: SkillBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    save_bank(bank, tmp_path / "bank.json")
    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(ConfigError, match="No space left"):
        save_bank(SkillBank(), tmp_path / "bank.json")
    assert load_bank(tmp_path / "bank.json") == bank
    assert list(tmp_path.iterdir()) == [tmp_path / "bank.json"]


def test_what_cannot_be_written_is_said_and_leaves_no_draft(tmp_path: Path, bank: SkillBank) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        save_bank(bank, tmp_path / "none" / "bank.json")
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        save_bank(bank, tmp_path / "taken")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="folder"):
        save_bank(bank, tmp_path / "file" / "bank", "markdown")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]
