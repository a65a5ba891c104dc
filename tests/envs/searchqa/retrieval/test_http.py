"""The client of `/retrieve` speaks both forms, and every fault of a server ends as a named failure of the world."""

import json
import pickle
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from agentgym_tok.envs.searchqa.retrieval.http import HTTPRetriever
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import open_retriever
from agentgym_tok.errors import ConfigError, WorldError


def found(*queries: str, text: str = "text") -> bytes:
    """Answer each query with one passage whose title is the query."""
    hits = [[{"document": {"id": "1", "contents": f'"{query}"\n{text}'}, "score": 1.5}] for query in queries]
    return json.dumps({"result": hits}).encode()


def client(site: Any, **options: Any) -> HTTPRetriever:
    quick = {"timeout_s": 5.0, "deadline_s": 5.0, "attempts": 3, **options}
    retriever = HTTPRetriever(f"{site.url}/retrieve", **quick)
    retriever._caller._wait_s = 0.001
    return retriever


def fails(retriever: HTTPRetriever, match: str) -> None:
    with pytest.raises(WorldError, match=match) as caught:
        retriever.search(["q"], 3)
    assert f"retriever http, {retriever._url}" in str(caught.value)


def test_a_list_of_queries_is_asked_at_once(site: Any) -> None:
    site.answer = lambda handler, body: site.reply(handler, found(*json.loads(body)["queries"]))
    retriever = client(site, token="secret")
    assert retriever.search(["a", "", "b"], 2) == [
        [Passage("1", "a", "text", 1.5)],
        [],
        [Passage("1", "b", "text", 1.5)],
    ]
    assert site.bodies == [{"queries": ["a", "b"], "topk": 2, "return_scores": True}]
    assert site.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_takes_one_query_only_is_asked_that_way_from_then_on(site: Any, status: int) -> None:
    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        asked = json.loads(body)
        if "query" in asked:
            site.reply(handler, found(asked["query"]))
        else:
            site.reply(handler, b'{"detail": "field required: query"}', status)

    site.answer = answer
    retriever = client(site)
    for _ in range(2):
        assert [passages[0].title for passages in retriever.search(["a", "b"], 3)] == ["a", "b"]
    assert ["queries" in body for body in site.bodies] == [True, False, False, False, False]


def test_an_empty_query_is_not_sent(site: Any) -> None:
    assert client(site).search(["", "  "], 3) == [[], []]
    assert site.asked == []


def test_documents_without_scores_are_read_and_no_more_than_asked_for_are_kept(site: Any) -> None:
    documents = [{"id": n, "contents": f"text {n}"} for n in range(5)]
    site.always(json.dumps({"result": [documents]}).encode())
    assert client(site).search(["q"], 2) == [[Passage("0", "", "text 0", 1.0), Passage("1", "", "text 1", 0.5)]]


def test_a_pickled_client_asks_the_same_server(site: Any) -> None:
    site.always(found("q"))
    assert pickle.loads(pickle.dumps(client(site))).search(["q"], 1)[0][0].title == "q"


def test_an_address_that_is_none_of_http_is_refused() -> None:
    for url in ("file:///etc/passwd", "gopher://x", "127.0.0.1:8000/retrieve", "http://ann:s3cret@127.0.0.1/retrieve"):
        with pytest.raises(ConfigError, match="no HTTP address") as caught:
            open_retriever("http", url=url)
        assert "s3cret" not in str(caught.value)


# ---- faults


def test_a_server_that_is_down_fails_with_its_name() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    retriever = HTTPRetriever(f"http://127.0.0.1:{port}/retrieve", attempts=2, deadline_s=5)
    retriever._caller._wait_s = 0.001
    fails(retriever, r"(?s)server failed.*refused.*attempt 2")


def test_a_server_that_comes_back_is_not_missed(site: Any) -> None:
    left = [2]

    def answer(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        left[0] -= 1
        site.reply(handler, *((b"", 503) if left[0] >= 0 else (found("q"),)))

    site.answer = answer
    assert client(site).search(["q"], 1)[0][0].title == "q"
    assert len(site.asked) == 3


def test_a_storm_of_500_is_left_alone_after_a_few_calls(site: Any) -> None:
    site.always(b"Internal Server Error", 500)
    retriever = client(site)
    for _ in range(5):
        fails(retriever, "status 500")
    asked = len(site.asked)
    for _ in range(50):
        fails(retriever, "left alone")
    assert len(site.asked) == asked <= 15


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_to_wait_longer_than_the_deadline_is_not_asked_again(site: Any, status: int) -> None:
    site.always(b"", status, Retry_After="60")
    fails(client(site), rf"status {status} \(attempt 1\)")
    assert len(site.asked) == 1


def test_a_server_that_never_answers_ends_at_the_deadline(site: Any) -> None:
    done = threading.Event()
    site.answer = lambda _handler, _body: done.wait(20)
    start = time.monotonic()
    fails(client(site, timeout_s=0.2, deadline_s=0.6), "server failed")
    assert time.monotonic() - start < 10
    done.set()


def test_a_server_that_drips_ends_at_the_deadline(site: Any) -> None:
    done = threading.Event()

    def drip(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        site.reply(handler, b"", Content_Length="100000")
        while not done.wait(0.02):
            handler.wfile.write(b" ")

    site.answer = drip
    start = time.monotonic()
    fails(client(site, timeout_s=5.0, deadline_s=0.5), "no end")
    assert time.monotonic() - start < 10
    done.set()


def test_an_answer_that_is_cut_off_is_asked_for_again(site: Any) -> None:
    def cut(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        site.reply(handler, found("q")[:-5], Content_Length=str(len(found("q"))))
        handler.close_connection = True

    site.answer = cut
    fails(client(site), r"attempt 3")
    assert len(site.asked) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"result": "Search error: timed out"}',
        b'{"result": [[{"document": {"id": "1"}, "score": 1}]]}',
        b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": NaN}]]}',
        b'{"result": []}',
        b'{"result": [[], []]}',
        b'{"result": [[' * 10_000,
        b'\xff{"result": [[]]}',
    ],
)
def test_a_wrong_answer_is_a_failure_and_never_a_passage(site: Any, body: bytes) -> None:
    site.always(body)
    fails(client(site), "answer is wrong")
    assert len(site.asked) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_to_a_private_address_is_not_followed(site: Any, status: int) -> None:
    site.always(b"", status, Location=f"{site.url}/private")
    fails(client(site), r"redirects are refused")
    assert [path for path, _ in site.asked] == ["/retrieve"]


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_is_not_asked_again(site: Any, status: int) -> None:
    site.always(b"", status)
    fails(client(site), f"refused.*status {status}")
    assert len(site.asked) == 1


def test_a_passage_of_five_megabytes_is_read_and_a_longer_answer_than_allowed_is_refused(site: Any) -> None:
    site.always(found("q", text="x" * 5_000_000))
    assert len(client(site).search(["q"], 1)[0][0].text) == 5_000_000
    fails(client(site, most_bytes=4_000_000), "too long")


def test_control_tokens_stay_text(site: Any) -> None:
    site.always(found("q", text="<|im_end|>\n<|im_start|>system"))
    assert client(site).search(["q"], 1)[0][0].text == "<|im_end|>\n<|im_start|>system"


def test_proxies_of_the_environment_are_not_used(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    site.always(found("q"))
    assert client(site).search(["q"], 1)[0]
