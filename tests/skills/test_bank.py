"""A bank is read-only, named by its content, and says what is wrong with it."""

import pickle

import pytest
from pydantic import ValidationError

from agentgym_tok.skills import Category, Mistake, Skill, SkillBank


def test_every_text_becomes_one_line_that_a_file_can_hold() -> None:
    skill = Skill(skill_id=" a\n1 ", title="t\t t", principle=" x\r\n\u2028y\ud800 ")
    assert (skill.skill_id, skill.title, skill.principle) == ("a 1", "t t", "x y\ufffd")


@pytest.mark.parametrize("fields", [{"skill_id": " ", "principle": "p"}, {"skill_id": "i", "principle": "\n"}])
def test_a_skill_says_something(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="no words"):
        Skill(**fields)


def test_the_digest_names_what_a_policy_may_read_and_nothing_else(bank: SkillBank) -> None:
    first = bank.general_skills[0]
    noted = SkillBank(**{**dict(bank), "metadata": {"source": "x"}})
    learned = SkillBank(
        **{**dict(bank), "general_skills": (first.model_copy(update={"episodes": ("e",)}), bank.general_skills[1])}
    )
    where_from = {"cool": [Skill(skill_id="n", principle="p", episodes=(name,)) for name in "e"]}
    assert noted.digest == learned.digest == bank.digest
    assert (
        bank.with_skills(where_from).digest == bank.with_skills({"cool": [Skill(skill_id="n", principle="p")]}).digest
    )
    assert len(bank.digest) == 32
    changed = [
        SkillBank(**{**dict(bank), "general_skills": (first,)}),
        SkillBank(**{**dict(bank), "common_mistakes": ()}),
        SkillBank(**{**dict(bank), "categories": bank.categories[::-1]}),
        bank.with_skills({"cool": [Skill(skill_id="n", principle="p")]}),
    ]
    assert len({bank.digest, *(one.digest for one in changed)}) == 5


def test_a_bank_is_a_value(bank: SkillBank) -> None:
    copy = pickle.loads(pickle.dumps(bank))
    assert copy == bank
    assert hash(copy) == hash(bank)
    with pytest.raises(ValidationError, match="frozen"):
        bank.general_skills = ()


@pytest.mark.parametrize(
    "fields",
    [
        {"categories": [{"name": "a"}, {"name": "A"}]},
        {"categories": [{"name": "general_skills"}]},
        {"categories": [{"name": "a", "types": ["x"]}, {"name": "x"}]},
        {"categories": [{"name": "a", "skills": [{"skill_id": "i", "principle": "p"}] * 2}]},
        {"general_skills": [{"skill_id": "i", "principle": "p"}] * 2},
        {"common_mistakes": [{"mistake_id": "i", "description": "d", "how_to_avoid": "h"}] * 2},
    ],
)
def test_nothing_stands_twice(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="stands twice"):
        SkillBank.model_validate(fields)


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b", "a\n", "."])
def test_a_categorys_name_is_a_files_name(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        Category(name=name)


def test_names_that_are_given_twice_stand_once() -> None:
    category = Category(name="a", types=("x", " x"), keywords=("one", "two", "one"))
    assert (category.types, category.keywords) == (("x",), ("one", "two"))


def test_added_skills_stand_behind_the_others(bank: SkillBank) -> None:
    new, other = Skill(skill_id="n", principle="p"), Skill(skill_id="m", principle="q")
    grown = bank.with_skills({"cool": [new], "": [other]})
    assert [skill.skill_id for skill in grown.general_skills] == ["gen_001", "gen_002", "m"]
    assert [skill.skill_id for skill in grown.categories[1].skills] == ["coo_001", "coo_002", "n"]
    assert grown.category("heat") == bank.category("heat")
    assert grown.category("none") is None
    with pytest.raises(ValidationError, match="stands twice"):
        grown.with_skills({"cool": [new]})


def test_skills_are_rendered_by_section_in_the_banks_order_once(bank: SkillBank) -> None:
    cool = bank.categories[1].skills
    text = bank.render([*cool[::-1], bank.general_skills[0], cool[0]], bank.common_mistakes)
    assert text == (
        "What has helped with such tasks before:\n\n"
        "General:\n- Title of gen_001: What gen_001 says.\n\n"
        "Cool:\n- Title of coo_001: What coo_001 says.\n- Title of coo_002: What coo_002 says.\n\n"
        "Mistakes to avoid:\n- Waiting. (Why not.) Instead: Go on.\n- Running. Instead: Walk."
    )


def test_what_says_nothing_is_rendered_as_nothing(bank: SkillBank) -> None:
    assert bank.render([]) == ""
    bare = SkillBank(general_skills=[Skill(skill_id="i", principle="p", when_to_apply="always")])
    assert bare.render(bare.skills).endswith("General:\n- p (When: always)")
    mistake = Mistake(mistake_id="m", description="d", how_to_avoid="h")
    assert bare.render([], [mistake]).endswith("Mistakes to avoid:\n- d Instead: h")
