"""What needs no reading of several passages stays low on the generated questions: a high score means something."""

import re
from collections.abc import Callable, Sequence
from random import Random

import pytest

from agentgym_tok.envs.searchqa import Corpus, open_retriever
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.scoring import exact_match
from agentgym_tok.envs.searchqa.synth import COMPARISONS, synth_passages, synth_questions
from agentgym_tok.envs.searchqa.synth_world import RELATIONS

Baseline = Callable[[str, Random], str]

PASSAGES = synth_passages()
TITLES = [passage.title for passage in PASSAGES]
RETRIEVER = open_retriever("bm25", corpus=Corpus.store(PASSAGES))


def at_random(_: str, draw: Random) -> str:
    """Answer with any title."""
    return draw.choice(TITLES)


def without_search(question: str, _: Random) -> str:
    """Answer with the first thing that the question names; of two that it compares that is often one."""
    named = [title for title in TITLES if re.search(rf"\b{re.escape(title)}\b", question)]
    return min(named, key=question.find, default="")


def by_one_query(question: str, draw: Random) -> str:
    """Search for the question once, and read what it asks for out of the first passage that tells it."""
    (found,) = RETRIEVER.search([question], 3)
    if is_comparison(question):
        return without_search(question, draw)
    return read(question, found)


def is_comparison(question: str) -> bool:
    return any(question.startswith(asks.split("{}")[0]) for asks, _ in COMPARISONS.values())


def read(question: str, found: Sequence[Passage]) -> str:
    asked = max(
        (name for name, one in RELATIONS.items() if shape(one.asks).fullmatch(question)),
        key=lambda name: len(RELATIONS[name].asks),
    )
    told = re.compile(re.escape(RELATIONS[asked].says).replace(r"\{\}", r"(.+?)") + r"\.( |$)")
    return next((match[1] for passage in found if (match := told.search(passage.text))), "")


def shape(asks: str) -> re.Pattern[str]:
    return re.compile(re.escape(asks).replace(r"\{\}", "(.+)"))


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("baseline", [at_random, without_search, by_one_query])
def test_a_baseline_stays_under_a_quarter(baseline: Baseline, split: str) -> None:
    draw = Random(0)
    questions = synth_questions(split)
    right = [exact_match(baseline(question.text, draw), question.answers) for question in questions]
    assert sum(right) / len(right) < 0.25


def test_one_query_is_a_baseline_that_tries() -> None:
    questions = [question for question in synth_questions("test") if "/1hop/" in question.id]
    right = [exact_match(by_one_query(question.text, Random(0)), question.answers) for question in questions]
    assert sum(right) / len(right) > 0.5
