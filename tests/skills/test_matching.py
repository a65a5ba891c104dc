"""Words match as whole words, types as whole words of a name."""

from collections.abc import Callable

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.skills import Category, SkillBank, SkillQuery, has_keyword, has_type, load_bank
from agentgym_tok.trace import Episode


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("a panel of wood", "pan"),
        ("that, or what?", "hat"),
        ("a drug store", "rug"),
        ("the wheel", "heel"),
        ("headphones", "phone"),
        ("a pan2", "pan"),
        ("the look of it", "look at"),
        ("cold\u00e9", "cold"),
        ("or which", "which ... or"),
        ("which of them for", "which ... or"),
        ("anything", "..."),
    ],
)
def test_a_keyword_does_not_match_inside_a_word(text: str, keyword: str) -> None:
    assert not has_keyword(text, keyword)


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("put a Pan, please", "pan"),
        ("two pans", "pan"),
        ("the dresses", "dress"),
        ("AA batteries", "battery"),
        ("pick_heat_then_place", "heat"),
        ("heat-resistant", "heat"),
        ("LOOK  at\nit", "look at"),
        ("which one is longer,\nA or B", "which ... or"),
        ("it is c++.", "c++"),
        ("ein Überzug", "überzug"),
    ],
)
def test_a_keyword_matches_words_in_any_case_and_their_plural(text: str, keyword: str) -> None:
    assert has_keyword(text, keyword)


@given(st.text("aesyi", min_size=1, max_size=5), st.text("aesyi", min_size=1, max_size=4))
def test_one_word_is_a_keyword_or_its_plural_or_neither(word: str, keyword: str) -> None:
    plurals = {keyword, f"{keyword}s", f"{keyword[:-1]}ies" if keyword.endswith("y") else f"{keyword}es"}
    assert has_keyword(word, keyword) == (word in plurals)


_WORD = st.text(st.characters(categories=["L", "Nd"]), min_size=1)


@given(_WORD, st.text(), st.text())
def test_a_keyword_is_found_between_anything_that_is_no_letter(keyword: str, before: str, after: str) -> None:
    assert has_keyword(f"{before} {keyword} {after}", keyword)


def test_a_type_is_found_in_the_names_that_worlds_give() -> None:
    game = "valid_seen/pick_and_place_simple-Pencil-None-Dresser-330/trial_T2019"
    assert has_type(game, "pick_and_place")
    assert has_type("pick_clean_then_place_in_recep", "clean")
    assert has_type("2wikimultihopqa/17", "2wikimultihopqa")
    assert not has_type("pick_and_placement", "pick_and_place")
    assert not has_type("nqx", "nq")
    assert not has_type("anything", "---")


def test_the_worlds_own_name_decides_before_any_keyword(bank: SkillBank) -> None:
    query = SkillQuery("put a cool mug in the pan", ("pick_heat_then_place_in_recep",))
    assert [category.name for category in bank.match(query)] == ["heat"]


def test_the_longest_type_wins_and_among_equals_the_first(bank: SkillBank) -> None:
    assert bank.match(SkillQuery("", ("unknown", "cool-pick_heat-look")))[0].name == "heat"
    longer = SkillBank(categories=[Category(name="a", types=("clean",)), Category(name="b", types=("pick_clean",))])
    assert longer.match(SkillQuery("", ("pick_clean_then_place",)))[0].name == "b"
    assert bank.match(SkillQuery("", ("look/cool",)))[0].name == "cool"
    assert bank.match(SkillQuery("", ("LOOK", "cool")))[0].name == "look"
    assert bank.match(SkillQuery("", ("overlook", "pick_heating"))) == ()


def test_without_a_known_kind_every_category_with_a_keyword_matches(bank: SkillBank) -> None:
    query = SkillQuery("put a cold pan on the panel, not what is hot", ("foreign",))
    assert [category.name for category in bank.match(query)] == ["heat", "cool", "look"]
    assert bank.match(SkillQuery("put a mug somewhere")) == ()


def test_a_query_is_made_of_info_and_of_episodes(builtin: ChatFormat, play: Callable[..., Episode]) -> None:
    env = gym.make("agentgym_tok/ALFWorld-v0", chat=builtin)
    _, info = env.reset(seed=0)
    query = SkillQuery.of_info(info, key="e1")
    assert query == SkillQuery(info["goal"], (info["task_type"], info["task"]), "e1")
    shipped = load_bank("alfworld")
    episode = play(info["task"], success=False, said="anything")
    assert shipped.match(SkillQuery.of_episode(episode)) == shipped.match(query)
    assert SkillQuery.of_episode(episode).text == "anything 0"
    assert SkillQuery.of_episode(play("t", success=True, steps=0)) == SkillQuery("", ("t",), "episode of t")
