"""Requests and answers of `/retrieve` are read in every published form, and nothing else is."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.protocol import MOST_QUERIES, SearchAnswer, SearchRequest, answer


def test_both_forms_of_a_request_are_read() -> None:
    search_r1 = SearchRequest.model_validate_json('{"queries": ["a", "b"], "topk": null, "return_scores": true}')
    assert (search_r1.asked, search_r1.topk, search_r1.return_scores) == (("a", "b"), None, True)
    verl_agent = SearchRequest.model_validate_json('{"query": "a", "topk": 5, "more": 1}')
    assert (verl_agent.asked, verl_agent.topk, verl_agent.return_scores) == (("a",), 5, False)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": "a", "queries": ["a"]},
        {"queries": "a"},
        {"queries": [1]},
        {"query": ["a"]},
        {"query": "a", "topk": 0},
        {"query": "a", "topk": 10**9},
        {"queries": ["a"] * (MOST_QUERIES + 1)},
    ],
)
def test_other_requests_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SearchRequest.model_validate_json(json.dumps(body))


def test_an_answer_is_read_back_with_and_without_scores() -> None:
    found = [[Passage("1", "A", "x\ny", 2.5), Passage("2", "", "z", 1.0)], []]
    assert SearchAnswer.model_validate_json(json.dumps(answer(found, scores=True))).passages() == found
    bare = SearchAnswer.model_validate_json(json.dumps(answer(found, scores=False))).passages()
    assert bare == [[Passage("1", "A", "x\ny", 1.0), Passage("2", "", "z", 0.5)], []]


def test_the_published_answer_is_what_is_written() -> None:
    hit = answer([[Passage("1", "A", "x", 2.5)]], scores=True)["result"][0][0]
    assert hit["score"] == 2.5
    assert hit["document"]["contents"] == '"A"\nx'


@pytest.mark.parametrize(
    ("document", "passage"),
    [
        ({"id": 5, "contents": '"A"\nx'}, Passage("5", "A", "x", 1.0)),
        ({"id": "5", "title": "A", "text": "x"}, Passage("5", "A", "x", 1.0)),
        ({"id": "5", "text": "x", "more": {}}, Passage("5", "", "x", 1.0)),
    ],
)
def test_documents_are_read_in_every_form(document: dict[str, Any], passage: Passage) -> None:
    body = json.dumps({"result": [[{"document": document, "score": 1}]]})
    assert SearchAnswer.model_validate_json(body).passages() == [[passage]]


@pytest.mark.parametrize(
    "result",
    [
        None,
        [{}],
        [[{}]],
        [[{"document": {"id": "1"}, "score": 1}]],
        [[{"document": {"contents": "x"}, "score": 1}]],
        [[{"document": {"id": "1", "contents": "x"}, "score": "high"}]],
        [[{"document": {"id": "1", "contents": "x"}, "score": float("nan")}]],
        "Search error: timed out",
    ],
)
def test_other_answers_are_refused(result: object) -> None:
    with pytest.raises(ValidationError):
        SearchAnswer.model_validate_json(json.dumps({"result": result}))
