"""The server speaks both forms to many at once, refuses what it must, and stops without losing an answer."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus
from agentgym_tok.envs.searchqa.retrieval.http import HTTPRetriever
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever, Retriever, open_retriever
from agentgym_tok.envs.searchqa.retrieval.serve import RetrieverServer
from agentgym_tok.errors import ConfigError, WorldError


@contextmanager
def serving(retriever: Retriever, **options: Any) -> Iterator[RetrieverServer]:
    server = RetrieverServer(retriever, port=0, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def bm25(tmp_path_factory: pytest.TempPathFactory) -> Retriever:
    passages = [
        Passage("1", "Ada", "Ada wrote a program: <|im_end|>"),
        Passage("2", "Bab", "Babbage built an engine."),
        Passage("3", "", "Another engine."),
        Passage("4", "Big", "walrus " + "é" * 5_000_000),
    ]
    return open_retriever("bm25", corpus=Corpus.store(passages, cache=tmp_path_factory.mktemp("c")))


@pytest.fixture(scope="module")
def url(bm25: Retriever) -> Iterator[str]:
    with serving(bm25, topk=1, most_bytes=10_000) as server:
        yield server.url


class Slow(BaseRetriever):
    name = "slow"

    def __init__(self, search: Callable[[], None]) -> None:
        super().__init__()
        self.wait = search

    def _search(self, queries: Any, k: int) -> list[list[Passage]]:
        self.wait()
        return [[Passage("1", "", query)] * min(k, 1) for query in queries]


def test_both_forms_are_answered_with_and_without_scores(url: str) -> None:
    scored = requests.post(url, json={"queries": ["engine", ""], "topk": 2, "return_scores": True}, timeout=9).json()
    assert [hit["document"]["id"] for hit in scored["result"][0]] == ["3", "2"]
    assert scored["result"][0][1]["document"]["contents"] == '"Bab"\nBabbage built an engine.'
    assert scored["result"][1] == []
    one = requests.post(url, json={"query": "engine", "topk": None}, timeout=9).json()
    assert [[document["id"] for document in documents] for documents in one["result"]] == [["3"]]
    assert one["result"][0][0]["contents"] == "Another engine."


def test_our_client_finds_the_same_as_in_process(url: str, bm25: Retriever) -> None:
    queries = ["ada program", "engine", "", "walrus", "nothing here"]
    with HTTPRetriever(url) as client:
        assert client.search(queries, 3) == bm25.search(queries, 3)


def test_sixty_four_clients_at_once_get_their_own_answers(url: str, bm25: Retriever) -> None:
    queries = [("ada", "engine", "babbage", "program")[number % 4] for number in range(64)]
    with HTTPRetriever(url) as client, ThreadPoolExecutor(64) as threads:
        found = list(threads.map(lambda query: client.search([query], 2)[0], queries))
    assert found == bm25.search(queries, 2)


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"", 422, "Invalid JSON"),
        (b"[]", 422, "should be an object"),
        (b"{}", 422, "either `queries` or `query`"),
        (b'{"query": "a", "topk": 0}', 422, "topk"),
        (b'{"queries": [1]}', 422, "queries: 0"),
        (json.dumps({"query": "x" * 10_000}).encode(), 413, "10000 bytes"),
    ],
)
def test_a_wrong_request_is_refused_with_its_reason(url: str, body: bytes, status: int, detail: str) -> None:
    response = requests.post(url, data=body, timeout=9)
    assert response.status_code == status
    assert detail in response.json()["detail"]


def test_other_paths_and_methods_are_not_there(url: str) -> None:
    base = url.removesuffix("/retrieve")
    assert requests.get(url, timeout=9).status_code == 405
    assert requests.get(f"{base}/docs", timeout=9).status_code == 404
    assert requests.get(f"{base}/../etc/passwd", timeout=9).status_code == 404


def test_health_and_metrics_are_told(url: str) -> None:
    base = url.removesuffix("/retrieve")
    requests.post(url, json={"query": "engine"}, timeout=9)
    assert requests.get(f"{base}/health", timeout=9).json() == {"status": "ok", "retriever": "bm25"}
    metrics = requests.get(f"{base}/metrics", timeout=9).text
    assert 'retriever_requests_total{status="200"}' in metrics
    assert "retriever_queue_wait_seconds_sum" in metrics


def test_a_token_is_asked_for_everywhere_but_for_health(bm25: Retriever) -> None:
    with serving(bm25, token="s3cret") as server:
        base = server.url.removesuffix("/retrieve")
        for header in (None, "Bearer wrong", "s3cret", "Bearer s3cret ", "Bearer s3crét"):
            headers = {"Authorization": header.encode()} if header else {}
            expected = 200 if header == "Bearer s3cret " else 401  # blanks around a header are none of it
            assert requests.post(server.url, json={"query": "a"}, headers=headers, timeout=9).status_code == expected
        assert requests.get(f"{base}/metrics", timeout=9).status_code == 401
        assert requests.get(f"{base}/health", timeout=9).status_code == 200
        assert HTTPRetriever(server.url, token="s3cret").search(["ada"], 1)[0][0].id == "1"
        with pytest.raises(WorldError, match="status 401"):
            HTTPRetriever(server.url).search(["ada"], 1)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org", ""])
def test_an_address_that_others_can_reach_needs_a_token(bm25: Retriever, host: str) -> None:
    for token in (None, ""):
        with pytest.raises(ConfigError, match="needs a token"):
            RetrieverServer(bm25, host=host, port=0, token=token)


def test_a_port_that_is_taken_is_named(bm25: Retriever) -> None:
    with serving(bm25) as server, pytest.raises(ConfigError, match="not free"):
        RetrieverServer(bm25, port=int(server.url.rpartition(":")[2].partition("/")[0]))


def test_a_full_queue_is_said_at_once_and_the_rest_is_answered() -> None:
    gate, arrived = threading.Event(), threading.Event()

    def wait() -> None:
        arrived.set()
        gate.wait(20)

    with serving(Slow(wait), most_waiting=2) as server, ThreadPoolExecutor(4) as threads:
        ask = lambda *queries: requests.post(server.url, json={"queries": queries}, timeout=20)  # noqa: E731
        first = threads.submit(ask, "a")
        arrived.wait(20)
        assert (full := ask("b", "c", "d")).status_code == 503
        assert full.headers["Retry-After"] == "1"
        gate.set()
        assert first.result().status_code == 200


def test_a_failed_search_is_an_error_and_the_server_lives_on() -> None:
    failures = [WorldError("index at /secret/path broke"), ZeroDivisionError("oops")]

    def fail() -> None:
        if failures:
            raise failures.pop(0)

    with serving(Slow(fail)) as server:
        for kind in ("WorldError", "ZeroDivisionError"):
            response = requests.post(server.url, json={"query": "a"}, timeout=9)
            assert response.status_code == 500
            assert response.json() == {"detail": f"the search failed: {kind}"}
        assert requests.post(server.url, json={"query": "a"}, timeout=9).status_code == 200


def test_a_request_under_way_is_answered_before_the_server_stops() -> None:
    gate, arrived = threading.Event(), threading.Event()

    def wait() -> None:
        arrived.set()
        gate.wait(20)

    with ThreadPoolExecutor(1) as threads:
        with serving(Slow(wait)) as server:
            answer = threads.submit(requests.post, server.url, json={"query": "a"}, timeout=20)
            arrived.wait(20)
            server.stop()
            threading.Timer(0.3, gate.set).start()
        assert answer.result().json()["result"][0][0]["contents"] == "a"
    with pytest.raises(requests.ConnectionError):
        requests.post(server.url, json={"query": "a"}, timeout=9)
