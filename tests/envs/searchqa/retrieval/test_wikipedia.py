"""Live pages are searched, read, kept and paced; a wiki that fails is a failure of the world."""

import json
import pickle
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.wikipedia import WikipediaRetriever
from agentgym_tok.errors import ConfigError, WorldError

PAGE = """<html><body><p>Menu</p><div class="mw-parser-output"><style>p {}</style><p class="empty"> </p>
<p>Ada <b>Lovelace</b> wrote
 programs.<sup class="reference">[1]</sup></p><table><tr><td>no paragraph</td></tr></table>
<p>Second: &lt;|im_end|&gt;.</p><p>%s</p><script>alert(1)</script></div></body></html>""" % ("long " * 400)
TEXT = "Ada Lovelace wrote programs.\nSecond: <|im_end|>."


@pytest.fixture
def wiki(site: Any) -> Any:
    def answer(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        parts = urlsplit(handler.path)
        if parts.path == "/w/api.php":
            titles = ["Ada Lovelace", "C++/é?"][: int(parse_qs(parts.query)["srlimit"][0])]
            hits = [{"ns": 0, "title": title, "pageid": number} for number, title in enumerate(titles, 7)]
            site.reply(handler, json.dumps({"query": {"search": hits}}).encode())
        else:
            site.reply(handler, PAGE.encode())

    site.answer = answer
    return site


def opened(site: Any, **options: Any) -> WikipediaRetriever:
    retriever = WikipediaRetriever(site=site.url, mirror=True, **{"pace_s": 0.0, "most_characters": 100, **options})
    retriever._caller._wait_s = 0.001
    return retriever


def test_the_beginnings_of_found_pages_are_passages(wiki: Any) -> None:
    found = opened(wiki).search(["who wrote & why?", ""], 2)
    assert found == [[Passage("7", "Ada Lovelace", TEXT, 1.0), Passage("8", "C++/é?", TEXT, 0.5)], []]
    assert [path for path, _ in wiki.asked] == [
        "/w/api.php?action=query&list=search&format=json&srlimit=2&srsearch=who+wrote+%26+why%3F",
        "/wiki/Ada_Lovelace",
        "/wiki/C%2B%2B/%C3%A9%3F",
    ]


def test_what_was_read_is_kept_on_disk(wiki: Any, cache: Path) -> None:
    first = opened(wiki).search(["ada"], 1)
    asked = len(wiki.asked)
    assert pickle.loads(pickle.dumps(opened(wiki))).search(["ada"], 1) == first
    assert len(wiki.asked) == asked == len(list((cache / "pages").iterdir()))


def test_requests_keep_the_pace(wiki: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    opened(wiki, pace_s=50.0).search(["ada"], 2)
    assert len(slept) == 2
    assert all(40 < seconds <= 50 for seconds in slept)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"query": {"search": [{"title": "x"}]}}', b'{"error": {}}'])
def test_a_wrong_answer_of_the_search_is_a_failure(site: Any, body: bytes) -> None:
    site.always(body)
    with pytest.raises(WorldError, match=r"answer is wrong; where: fetch http"):
        opened(site).search(["ada"], 1)


def test_a_wiki_that_fails_is_a_failure_with_its_name(site: Any) -> None:
    site.always(b"", 404)
    with pytest.raises(WorldError, match="status 404"):
        opened(site).search(["ada"], 1)
    site.always(b"", 500)
    with pytest.raises(WorldError, match=r"status 500.*attempt 3|where: retriever wikipedia"):
        opened(site).search(["ada"], 1)
    site.always(b"x" * 2000)
    with pytest.raises(WorldError, match="too long"):
        opened(site, most_bytes=1000).search(["ada"], 1)


def test_a_page_that_redirects_to_a_private_address_is_refused(site: Any) -> None:
    site.always(b"", 302, Location="http://" + "169.254.169.254/latest/meta-data/")
    with pytest.raises(WorldError, match="address is refused"):
        opened(site).search(["ada"], 1)


@pytest.mark.parametrize(
    "site",
    [
        "http://en.wikipedia.org",
        "https://wikipedia.org.evil.example",
        "https://evilwikipedia.org",
        "https://127.0.0.1",
        "file:///etc",
    ],
)
def test_a_site_that_is_not_wikipedia_needs_to_be_called_a_mirror(site: str) -> None:
    with pytest.raises(ConfigError, match="not Wikipedia"):
        WikipediaRetriever(site=site)
