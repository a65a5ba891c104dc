"""The explorer takes questions apart, reads what it finds, and answers by nothing else."""

import dataclasses
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.searchqa.engine import SearchQAEngine
from agentgym_tok.envs.searchqa.env import SearchQAEnv, make_searchqa_engine
from agentgym_tok.envs.searchqa.explorer import SearchQAExplorer
from agentgym_tok.envs.searchqa.synth import synth_questions

MOST = 10


def play(engine: SearchQAEngine, task: str, most: int = MOST) -> Iterator[tuple[str, TextObservation]]:
    """Yield commands and what they led to."""
    explorer = SearchQAExplorer()
    explorer.reset(engine.reset(task).text)
    for _ in range(most):
        command = explorer.act()
        seen = engine.step(command)
        explorer.follow(command, seen.text)
        yield command, seen
        if seen.terminated:
            return


@pytest.mark.parametrize("layout", ["title", "contents"])
def test_it_answers_held_out_questions_of_every_kind(layout: str) -> None:
    engine = make_searchqa_engine("synth", "test", layout=layout)
    for task in engine.tasks():
        *_, (_, end) = play(engine, task, most=5)
        assert end.success, engine.task_info()["goal"]


@pytest.mark.deep
@pytest.mark.parametrize("split", ["train", "valid"])
def test_it_answers_all_questions(split: str) -> None:
    engine = make_searchqa_engine("synth", split)
    for task in engine.tasks():
        *_, (_, end) = play(engine, task)
        assert end.success, engine.task_info()["goal"]


def test_hidden_answers_change_nothing() -> None:
    questions = synth_questions("valid")[:40]
    real = make_searchqa_engine("synth", "valid")
    blind = [dataclasses.replace(question, answers=("?",), titles=(), queries=()) for question in questions]
    changed = SearchQAEngine(blind, real.retriever, source="SearchQA-test")
    for question in questions:
        said = [command for command, _ in play(real, question.id)]
        assert said == [command for command, _ in play(changed, question.id)]


def test_it_says_what_the_passages_say_even_where_the_world_knows_better() -> None:
    explorer = SearchQAExplorer()
    explorer.reset("In which year did the birthplace of Ada Calbaberg get its charter?")
    assert explorer.act() == "search[Ada Calbaberg was born in]"
    explorer.follow(explorer.act(), "Doc 1(Title: Ada Calbaberg) Ada was born in Torby.\nDoc 2(Title: Torbys) No.")
    assert explorer.act() == "search[Torby got its charter in]"
    explorer.follow(explorer.act(), "Doc 1(Title: Torby) Torby is a market town. The town got its charter in 1234.")
    assert explorer.act() == "answer[1234]"


def test_a_turn_begins_with_what_was_learned_since_the_one_before() -> None:
    explorer = SearchQAExplorer()
    explorer.reset('Which book came out earlier, "The Red Fox" or "The Pale Owl"?')
    assert (explorer.act(), explorer.thought) == ("search[The Red Fox came out in]", "")
    explorer.follow(explorer.act(), "Doc 1(Title: The Red Fox) The book came out in 1800.")
    assert explorer.act() == "search[The Pale Owl came out in]"
    assert explorer.thought == " The Red Fox: The book came out in 1800."
    explorer.follow(explorer.act(), "Doc 1(Title: The Pale Owl) The book came out in 1799.")
    # Asked twice, it says the same.
    assert explorer.act() == explorer.act() == "answer[The Pale Owl]"
    assert explorer.thought == (
        " The Pale Owl: The book came out in 1799. 1800: The Red Fox. 1799: The Pale Owl. Smaller: 1799: The Pale Owl."
    )


def test_thoughts_say_nothing_but_what_stands_in_the_texts() -> None:
    engine, quoted = make_searchqa_engine("synth", "test"), 0
    for task in engine.tasks()[:40]:
        explorer, seen = SearchQAExplorer(), engine.reset(task)
        explorer.reset(seen.text)
        known = seen.text
        while not seen.terminated:
            command = explorer.act()
            names = re.findall(r"[A-Z][\w'-]+|\d+", re.sub("Smaller:|Larger:", "", explorer.thought))
            assert all(name in known for name in names), (explorer.thought, known)
            quoted += bool(names)
            seen = engine.step(command)
            explorer.follow(command, seen.text)
            known += seen.text
    assert quoted > 80  # every turn but the first


def test_what_was_not_found_is_searched_in_other_words_and_given_up_at_last() -> None:
    explorer = SearchQAExplorer()
    explorer.reset('Who wrote the book "The Pale Owl"?')
    said = []
    while (command := explorer.act()).startswith("search"):
        said.append(command)
        explorer.follow(command, "No search results found.")
    assert len(said) == len(set(said)) == 3
    assert command == "answer[unknown]"


def test_a_question_of_another_form_is_searched_once() -> None:
    explorer = SearchQAExplorer()
    explorer.reset("who plays the doctor?")
    assert explorer.act() == "search[who plays the doctor?]"
    explorer.follow(explorer.act(), 'Doc 1(Title: "A Doctor") He plays.')
    assert explorer.act() == "answer[A Doctor]"


@pytest.mark.parametrize("prompting", ["transcript", "search_r1", "react", "step"])
def test_every_prompting_carries_its_turns(builtin: ChatFormat, prompting: str) -> None:
    env = SearchQAEnv(builtin, split="test", prompting=prompting)
    _, info = env.reset(options={"task": 0})
    while env.running:
        *_, info = env.step(builtin.encode_turn(env.hints()["explorer"]))
    assert info["em"] == 1


TEXTS = st.one_of(
    st.text(max_size=40), st.sampled_from(["search[a]", "Doc 1(Title: a) a was born in b.", "Who wrote the book a?"])
)


@given(TEXTS, st.lists(st.tuples(TEXTS, TEXTS), max_size=8))
def test_no_text_confuses_it_for_good(first: str, more: list[tuple[str, str]]) -> None:
    explorer = SearchQAExplorer()
    explorer.reset(first)
    for command, text in more:
        explorer.follow(command, text)
    assert explorer.act().startswith(("search[", "answer["))
