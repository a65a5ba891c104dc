"""Every retriever keeps the same promises, and is opened by its name."""

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from agentgym_tok.envs.searchqa.retrieval import retriever as retriever_module
from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import RETRIEVERS, Retriever, open_retriever
from agentgym_tok.errors import ConfigError, UnknownName, WorldError

Open = Callable[[Corpus], Retriever]
OPENED = [
    pytest.param(lambda corpus: open_retriever("bm25", corpus=corpus), id="bm25"),
    pytest.param(lambda corpus: open_retriever("sqlite", corpus=corpus), id="sqlite"),
    pytest.param(lambda corpus: open_retriever("hybrid", retrievers=("bm25", "sqlite"), corpus=corpus), id="hybrid"),
]


@pytest.mark.parametrize("opened", OPENED)
def test_the_best_passage_stands_first_and_ties_in_the_order_of_the_corpus(opened: Open, corpus: Corpus) -> None:
    retriever = opened(corpus)
    assert isinstance(retriever, Retriever)
    engine, kettle, nothing = retriever.search(["who wrote the first program?", "copper kettle", "zzz"], 3)
    assert engine[0] == Passage("a", corpus[0].title, corpus[0].text, engine[0].score)
    assert [passage.id for passage in kettle] == ["c", "d"]
    assert [passage.score for passage in engine] == sorted((passage.score for passage in engine), reverse=True)
    assert nothing == []
    assert [passage.id for passage in retriever.search(["zürich"], 3)[0]] == ["f"]  # stands in the title only
    retriever.close()
    retriever.close()


@pytest.mark.parametrize("opened", OPENED)
def test_the_batch_does_not_matter(opened: Open, corpus: Corpus) -> None:
    retriever = opened(corpus)
    queries = ["analytical engine", "", "kettle", "analytical engine", "Zürich"]
    whole = retriever.search(queries, 2)
    assert whole == [retriever.search([query], 2)[0] for query in queries]
    assert whole[0] == whole[3] == retriever.search(["analytical engine"], 9)[0][:2]
    retriever.close()


@pytest.mark.parametrize("opened", OPENED)
def test_an_empty_query_finds_nothing(opened: Open, corpus: Corpus) -> None:
    retriever = opened(corpus)
    assert retriever.search(["", " \n", "the of", "?!", '" OR "'], 3) == [[], [], [], [], []]
    assert retriever.search([], 3) == []
    retriever.close()


@pytest.mark.parametrize("opened", OPENED)
def test_control_tokens_and_foreign_letters_pass_through_unchanged(opened: Open, corpus: Corpus) -> None:
    retriever = opened(corpus)
    (control,), (cafe, *_) = retriever.search(["walrus <|im_end|>", "façade \ud800"], 1)
    assert (control.title, control.text) == (corpus[4].title, corpus[4].text)
    assert cafe.text == corpus[5].text
    retriever.close()


@pytest.mark.parametrize("opened", OPENED)
def test_a_query_of_any_length_is_answered(opened: Open, corpus: Corpus) -> None:
    retriever = opened(corpus)
    long = " ".join(f"word{number}" for number in range(20_000)) + " kettle"
    assert [passage.id for passage in retriever.search([long], 1)[0]] == ["c"]
    retriever.close()


@pytest.mark.parametrize("opened", OPENED)
def test_a_pickled_retriever_opens_its_corpus_again(opened: Open, corpus: Corpus) -> None:
    retriever = opened(corpus)
    again: Retriever = pickle.loads(pickle.dumps(retriever))
    assert again.search(["analytical engine"], 3) == retriever.search(["analytical engine"], 3)
    again.close()
    retriever.close()


def test_a_passage_of_five_megabytes_is_found_whole() -> None:
    text = "tiny " * 1_000_000 + "walrus"
    corpus = Corpus.store([Passage("big", "Big", text), Passage("small", "Small", "walrus")])
    for name in ("bm25", "sqlite"):
        with contextlib.closing(open_retriever(name, corpus=corpus)) as retriever:
            assert [passage.id for passage in retriever.search(["walrus"], 2)[0]] == ["small", "big"]
            assert retriever.search(["walrus"], 2)[0][1].text == text


def test_wrong_arguments_and_a_closed_retriever_are_refused(corpus: Corpus) -> None:
    retriever = open_retriever("bm25", corpus=corpus)
    with pytest.raises(ConfigError, match="k must be"):
        retriever.search(["x"], 0)
    for queries in ("text", [1]):
        with pytest.raises(ConfigError, match="sequence of strings"):
            retriever.search(queries, 1)  # type: ignore[arg-type]
    retriever.close()
    with pytest.raises(WorldError, match=r"closed; where: retriever bm25"):
        retriever.search(["x"], 1)


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean sqlite"):
        open_retriever("sqllite")


@pytest.mark.parametrize("options", [{}, {"corpus": "x", "speed": 3}])
def test_options_that_do_not_fit_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"retriever bm25.*expected: corpus, k1, b, progress"):
        open_retriever("bm25", **options)


def test_every_name_has_its_class() -> None:
    for name, (module, kind) in RETRIEVERS.items():
        found = getattr(
            retriever_module.importlib.import_module(f"agentgym_tok.envs.searchqa.retrieval.{module}"), kind
        )
        assert found.name == name
