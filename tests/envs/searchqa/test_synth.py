"""The generated world: the same everywhere, split by its things, and solvable through the retriever."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from agentgym_tok.envs.searchqa.env import make_searchqa_engine
from agentgym_tok.envs.searchqa.scoring import exact_match, normalize_answer
from agentgym_tok.envs.searchqa.synth import KINDS, SPLITS, synth_passages, synth_questions
from agentgym_tok.errors import ConfigError, UnknownName

DIGEST = """
import hashlib
from agentgym_tok.envs.searchqa.synth import SPLITS, synth_passages, synth_questions
whole = hashlib.sha256(repr((synth_passages(), [synth_questions(split) for split in SPLITS])).encode())
print(whole.hexdigest())
"""
# Scores of another world are not comparable: whoever changes it renames the source.
PINNED = "ffb86194d010052233de459b87079190d965c83b19845ed499d9d4dd875b0ee7"


def test_the_world_is_pinned_and_no_hash_seed_changes_it() -> None:
    whole = hashlib.sha256(repr((synth_passages(), [synth_questions(split) for split in SPLITS])).encode())
    assert whole.hexdigest() == PINNED
    for seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == PINNED


def test_other_worlds_share_no_name_and_no_question_with_the_one_that_scores_are_about() -> None:
    names = {normalize_answer(passage.title) for passage in synth_passages()}
    texts = {question.text for split in SPLITS for question in synth_questions(split)}
    for world in (1, 2):
        passages, questions = synth_passages(world), synth_questions("train", world)
        assert len(passages) == len(synth_passages())
        assert not names & {normalize_answer(passage.title) for passage in passages}
        assert not texts & {question.text for question in questions}
        assert {question.dataset for question in questions} == {f"SearchQA-synth-{world}"}
        assert questions[0].id.startswith(f"SearchQA-synth-{world}/train/1hop/")
    assert synth_passages(1) != synth_passages(2)


def test_the_expert_solves_another_world_through_its_own_corpus() -> None:
    engine = make_searchqa_engine(split="valid", world=3)
    assert engine.source == "SearchQA-synth-3"
    for task in engine.tasks()[:40]:
        engine.reset(task)
        seen = engine.step(engine.expert_command() or "")
        while not seen.terminated and (command := engine.expert_command()):
            seen = engine.step(command)
        assert seen.success, task


@pytest.mark.parametrize("options", [{"world": -1}, {"world": 1, "source": "official"}])
def test_a_world_that_is_none_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no such world"):
        make_searchqa_engine(**options)


def test_splits_share_no_thing_and_no_question() -> None:
    titles = {split: {title for question in synth_questions(split) for title in question.titles} for split in SPLITS}
    texts = {split: {question.text for question in synth_questions(split)} for split in SPLITS}
    for one in SPLITS:
        assert len(texts[one]) == SPLITS[one]
        for other in set(SPLITS) - {one}:
            assert not titles[one] & titles[other]
            assert not texts[one] & texts[other]
    assert set.union(*titles.values()) <= {passage.title for passage in synth_passages()}


def test_names_are_unique_as_scores_see_them_and_many_are_nearly_the_same() -> None:
    titles = [passage.title for passage in synth_passages()]
    assert len({normalize_answer(title) for title in titles}) == len(titles) > 2500
    known = set(titles)
    twins = [
        title
        for title in titles
        if any(
            title.replace(mark, "", 1) in known - {title}
            for mark in ("New ", "Upper ", "Little ", " the Younger", " Returns", " II")
        )
    ]
    assert len(twins) > 100


@pytest.mark.parametrize("split", SPLITS)
def test_any_beginning_is_a_fair_mix_of_kinds(split: str) -> None:
    for count in (10, 100):
        kinds = Counter(question.id.split("/")[2] for question in synth_questions(split)[:count])
        assert kinds == {kind: share * count // 10 for kind, share in zip(KINDS, (2, 3, 2, 1, 2), strict=True)}


@pytest.mark.parametrize("split", SPLITS)
def test_a_question_of_n_hops_needs_n_passages_and_the_last_holds_the_answer(split: str) -> None:
    texts = {passage.title: passage.text for passage in synth_passages()}
    for question in synth_questions(split):
        kind = question.id.split("/")[2]
        assert len(question.titles) == len(question.queries)
        if kind == "compare":
            assert len(question.titles) in {2, 4}
            assert question.answers[0] in question.titles
            continue
        assert len(question.titles) == int(kind[0])
        assert question.answers[0] in texts[question.titles[-1]]
        # Only the first thing is named; the others must be read.
        assert question.titles[0] in question.text
        for title, following in zip(question.titles, question.titles[1:], strict=False):
            assert following in texts[title]
            assert following not in question.text


@pytest.mark.parametrize(
    ("split", "retriever"), [("train", "bm25"), ("valid", "bm25"), ("test", "bm25"), ("test", "sqlite")]
)
def test_the_expert_solves_all_of_it_through_the_retriever(split: str, retriever: str) -> None:
    engine = make_searchqa_engine(split=split, retriever=retriever)
    for task in engine.tasks():
        engine.reset(task)
        seen = engine.step(engine.expert_command() or "")
        while not seen.terminated and (command := engine.expert_command()):
            seen = engine.step(command)
        assert (seen.success, seen.reward) == (True, 1.0), task


def test_answers_cannot_be_guessed_from_the_question() -> None:
    questions = synth_questions("test")
    named = [question for question in questions if question.id.split("/")[2] != "compare"]
    assert not any(exact_match(question.answers[0], [question.text]) for question in named)
    assert not any(normalize_answer(question.answers[0]) in normalize_answer(question.text) for question in named)


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(UnknownName, match="did you mean valid"):
        synth_questions("vlid")
