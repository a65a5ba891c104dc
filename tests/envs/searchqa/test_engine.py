"""The engine: searches, one answer, and a retriever that may fail."""

import pickle
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.envs.engine import TextEngine
from agentgym_tok.envs.searchqa.engine import SearchQAEngine
from agentgym_tok.envs.searchqa.layout import NOTHING_FOUND
from agentgym_tok.envs.searchqa.questions import Question
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.errors import AgentGymTokError, ConfigError, DataMissing, ResetNeeded, UnknownName, WorldError

BRIDGE = Question(
    "nq/1", "Who built the bridge of Holm?", ("Ann Lee", "A. Lee"), "nq", ("Holm", "Ann"), ("holm", "ann")
)
YEAR = Question("nq/2", "In which year?", ("1901",), "nq")


class Shelf:
    """Find the passage whose title is the query; "broken" fails."""

    name: ClassVar[str] = "shelf"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.asked += [(query, k) for query in queries]
        if "broken" in queries:
            raise WorldError("the index is gone", where="shelf")
        return [[Passage(query, query.title(), f"About {query}.", 2.5)] if query.isalpha() else [] for query in queries]

    def close(self) -> None:
        pass


def make(**options: Any) -> SearchQAEngine:
    return SearchQAEngine([BRIDGE, YEAR], Shelf(), source="test", **options)


def test_it_is_a_text_engine() -> None:
    assert isinstance(make(), TextEngine)
    assert make().tasks() == ("nq/1", "nq/2")


def test_a_search_shows_passages_and_an_answer_ends_the_episode() -> None:
    engine = make()
    seen = engine.reset()
    assert (seen.text, seen.valid, seen.facts["passages"]) == ("Who built the bridge of Holm?", None, ())
    seen = engine.step("search[holm]")
    assert seen.text == 'Doc 1(Title: "Holm") About holm.'
    assert (seen.valid, seen.terminated, seen.reward) == (True, False, 0.0)
    assert seen.facts == {"answer": None, "em": 0.0, "subem": 0.0, "f1": 0.0, "passages": (("holm", 2.5),)}
    seen = engine.step("answer[Ann Lee.]")
    assert (seen.terminated, seen.success, seen.reward, seen.valid) == (True, True, 1.0, True)
    assert seen.facts["answer"] == "Ann Lee."
    with pytest.raises(ResetNeeded, match="call reset"):
        engine.step("search[holm]")


@pytest.mark.parametrize(
    ("answer", "reward", "em", "subem", "f1"),
    [
        ("the Ann Lee", "em", 1, 1, 1),
        ("Ann", "em", 0, 0, 2 / 3),
        ("Ann", "f1", 0, 0, 2 / 3),
        ("I say a. lee", "subem", 0, 1, 1 / 2),
        ("", "f1", 0, 0, 0),
    ],
)
def test_an_answer_is_worth_what_was_asked_for(answer: str, reward: Any, em: float, subem: float, f1: float) -> None:
    engine = make(reward=reward)
    engine.reset()
    seen = engine.step(f"answer[{answer}]")
    scores = {"em": em, "subem": subem, "f1": f1}
    assert {name: seen.facts[name] for name in scores} == pytest.approx(scores)
    assert seen.reward == seen.facts[reward]
    assert seen.success is (em == 1)
    assert seen.valid is bool(answer)
    assert seen.terminated


@pytest.mark.parametrize("command", ["", "hello", "search", "search[holm", "find[holm]", "<search>holm</search>"])
def test_any_other_command_is_told_what_there_is(command: str) -> None:
    engine = make()
    engine.reset()
    seen = engine.step(command)
    assert (seen.valid, seen.terminated) == (False, False)
    assert "search[QUERY]" in seen.text
    assert not engine.retriever.asked  # type: ignore[attr-defined]


@pytest.mark.parametrize(("command", "valid"), [("search[]", False), ("search[  ]", False), ("search[?!]", True)])
def test_a_search_that_finds_nothing_says_so(command: str, valid: bool) -> None:
    engine = make()
    engine.reset()
    seen = engine.step(command)
    assert (seen.text, seen.valid) == (NOTHING_FOUND, valid)


def test_layout_and_number_of_passages_are_options() -> None:
    engine = make(layout="contents", topk=7)
    engine.reset()
    assert engine.step("search[holm]").text == 'Doc 1: "Holm"\nAbout holm.'
    assert engine.retriever.asked == [("holm", 7)]  # type: ignore[attr-defined]


def test_only_the_first_turns_may_search_and_invalid_ones_count() -> None:
    engine = make(search_turns=2)
    engine.reset()
    engine.step("hello")
    assert engine.step("search[holm]").valid
    assert not engine.step("search[ann]").valid
    assert engine.retriever.asked == [("holm", 3)]  # type: ignore[attr-defined]
    engine.reset()
    assert engine.step("search[ann]").valid


# ---- faults


def test_a_search_that_fails_raises_and_changes_nothing() -> None:
    engine = make(search_turns=2)
    engine.reset()
    engine.step("search[holm]")
    with pytest.raises(WorldError, match="the index is gone"):
        engine.step("search[broken]")
    assert engine.expert_command() == "search[ann]"
    assert engine.step("search[ann]").valid


def test_a_failure_is_text_only_where_that_was_asked_for() -> None:
    engine = make(errors="text")
    engine.reset()
    seen = engine.step("search[broken]")
    assert (seen.text, seen.valid, seen.facts["passages"]) == ("Search error: the index is gone", False, ())


# ---- tasks, experts, copies


def test_tasks_are_started_by_name_and_again() -> None:
    engine = make()
    with pytest.raises(ResetNeeded):
        engine.task_info()
    with pytest.raises(ResetNeeded):
        engine.step("search[x]")
    engine.reset("nq/2")
    assert engine.task_info() == {"task": "nq/2", "task_type": "nq", "dataset": "nq", "goal": "In which year?"}
    assert engine.reset().text == "In which year?"
    assert engine.answers == ("1901",)
    with pytest.raises(UnknownName, match="did you mean nq"):
        engine.reset("nq/3")


def test_the_expert_searches_along_the_chain_and_reads_what_was_found() -> None:
    engine = make()
    assert engine.expert_command() is None
    engine.reset()
    for command in ("search[holm]", "search[ann]", "answer[Ann Lee]"):
        assert engine.expert_command() == command
        seen = engine.step(command)
    assert seen.success
    assert engine.expert_command() is None
    engine.reset("nq/2")
    assert engine.expert_command() is None


def test_the_expert_knows_no_way_where_its_search_does_not_find_the_passage() -> None:
    lost = Question("x/1", "?", ("y",), "x", ("Elsewhere",), ("holm",))
    engine = SearchQAEngine([lost], Shelf(), source="test")
    engine.reset()
    engine.step(engine.expert_command() or "")
    assert engine.expert_command() is None


COMMANDS = st.sampled_from(["search[holm]", "search[ann]", "search[]", "hello", "answer[Ann Lee]", "answer[x]"])


def play(engine: SearchQAEngine, commands: Sequence[str]) -> list[Any]:
    seen: list[Any] = []
    for command in commands:
        if seen and seen[-1][0].terminated:
            break
        seen.append((engine.step(command), engine.expert_command()))
    return seen


@given(
    before=st.lists(COMMANDS, max_size=3), ours=st.lists(COMMANDS, max_size=4), theirs=st.lists(COMMANDS, max_size=4)
)
@settings(max_examples=60)
def test_clones_and_pickles_go_on_independently(before: list[str], ours: list[str], theirs: list[str]) -> None:
    engine = make(search_turns=4)
    engine.reset()
    if any(seen.terminated for seen, _ in play(engine, before)):
        return
    twin, other, pickled = engine.clone(), engine.clone(), pickle.loads(pickle.dumps(engine))
    assert twin.retriever is engine.retriever
    first = play(engine, ours)
    play(other, theirs)
    assert play(twin, ours) == first == play(pickled, ours)


# ---- bad input


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"reward": "emm"}, UnknownName, "did you mean em"),
        ({"layout": "titel"}, UnknownName, "did you mean title"),
        ({"errors": "txt"}, UnknownName, "did you mean text"),
        ({"topk": 0}, ConfigError, "topk=0"),
        ({"search_turns": -1}, ConfigError, "search_turns=-1"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, Any], error: type[AgentGymTokError], words: str
) -> None:
    with pytest.raises(error, match=words):
        make(**options)


def test_no_questions_are_missing_data() -> None:
    with pytest.raises(DataMissing, match="no questions"):
        SearchQAEngine([], Shelf(), source="test")
