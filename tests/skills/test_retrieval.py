"""Which skills each rule gives a task."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError, UnknownName
from agentgym_tok.skills import (
    RETRIEVERS,
    Category,
    Full,
    Keyword,
    Random,
    Retriever,
    SkillBank,
    SkillQuery,
    make_retriever,
)

NAMES = SkillBank(categories=[Category(name=name) for name in "abcd"])


@pytest.mark.parametrize("name", RETRIEVERS)
def test_each_rule_is_made_by_its_name_and_gives_general_skills_and_mistakes(name: str, bank: SkillBank) -> None:
    rule = make_retriever(name, bank, mistakes=1)
    assert isinstance(rule, Retriever)
    assert (rule.name, rule.bank) == (name, bank)
    query = SkillQuery("cool it")
    found = rule.retrieve(query)
    assert found.query is query
    assert found.skills[:2] == bank.general_skills
    assert found.mistakes == bank.common_mistakes[:1]
    assert found.text == bank.render(found.skills, found.mistakes)
    rule.update(found, 1.0) if len(found.categories) == 1 else None


def test_unknown_rules_and_options_are_refused(bank: SkillBank) -> None:
    with pytest.raises(UnknownName, match="did you mean keyword"):
        make_retriever("keywords", bank)
    with pytest.raises(ConfigError, match="seed"):
        make_retriever("keyword", bank, seed=1)


def test_keyword_gives_what_matches_or_the_general_skills_alone(bank: SkillBank) -> None:
    rule = Keyword(bank)
    assert rule.retrieve(SkillQuery("a panel of cold wood")).categories == ("cool",)
    assert rule.retrieve(SkillQuery("cold pans")).categories == ("cool", "look")
    nothing = rule.retrieve(SkillQuery("a panel"))
    assert nothing.categories == ()
    assert nothing.skills == bank.general_skills


def test_full_gives_all(bank: SkillBank) -> None:
    found = Full(bank).retrieve(SkillQuery(""))
    assert found.skills == bank.skills
    assert found.categories == ("heat", "cool", "look")


@given(st.integers(0, 2**40), st.lists(st.text(max_size=3), min_size=2, max_size=5))
def test_random_depends_on_seed_and_task_alone(seed: int, texts: list[str]) -> None:
    forth = [Random(NAMES, seed=seed).retrieve(SkillQuery(text)).categories for text in texts]
    rule = Random(NAMES, seed=seed)
    back = [rule.retrieve(SkillQuery(text)).categories for text in texts[::-1]]
    assert forth == back[::-1]


def test_random_draws_every_category_equally_often() -> None:
    rule = Random(NAMES, seed=3)
    drawn = Counter(rule.retrieve(SkillQuery("one", ("kind",), str(key))).categories for key in range(2000))
    # Four standard deviations of a binomial with n 2000 and p 1/4.
    assert {abs(count - 500) < 78 for count in drawn.values()} == {True}
    assert len(drawn) == 4
    assert len({rule.retrieve(SkillQuery(str(text))).categories for text in range(40)}) == 4
    assert len({rule.retrieve(SkillQuery("", (str(kind),))).categories for kind in range(40)}) == 4
    other = Random(NAMES, seed=4)
    keys = [SkillQuery("one", ("kind",), str(key)) for key in range(40)]
    assert [rule.retrieve(key).categories for key in keys] != [other.retrieve(key).categories for key in keys]


def test_rules_live_with_a_bank_of_general_skills_alone(bank: SkillBank) -> None:
    general = SkillBank(general_skills=bank.general_skills)
    for name in ("keyword", "full", "random"):
        assert make_retriever(name, general).retrieve(SkillQuery("cool")).skills == bank.general_skills
    with pytest.raises(ConfigError, match="nothing to choose"):
        make_retriever("ucb", general)
