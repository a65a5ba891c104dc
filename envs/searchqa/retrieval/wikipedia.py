"""A retriever over live Wikipedia: its own search, and the beginnings of the pages that it finds."""

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, urlencode, urlsplit

from bs4 import BeautifulSoup
from pydantic import ConfigDict, ValidationError

from agentgym_tok.config import Config
from agentgym_tok.envs.cache import cache_folder
from agentgym_tok.envs.searchqa.retrieval.calls import Caller
from agentgym_tok.envs.searchqa.retrieval.fetch import Fetcher
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever
from agentgym_tok.errors import ConfigError, WorldError

__all__ = ["WikipediaRetriever"]

_AGENT = "agentgym_tok (language model research; one request at a time)"


class WikipediaRetriever(BaseRetriever):
    """Search Wikipedia and read the pages; what was read once is kept on disk.

    Live pages change: results are those of the day, or of the cache. The order is that of Wikipedia's search, and the
    n-th passage's score is 1 / n. One request goes out at a time, and not more often than the pace allows.

    Args:
        site: The wiki; any host of Wikimedia's `wikipedia.org`, or an own mirror with `mirror=True`.
        mirror: The site is one's own and may stand in a private network; nothing else can be reached then either.
        cache: The folder above; see `cache_folder`.
        most_characters: How much of a page's beginning a passage holds, in whole paragraphs.
        most_bytes: How long a page may be.
        pace_s: The least time between two requests, in seconds.
        timeout_s: How long to wait for a connection, or for the next bytes, in seconds.
        deadline_s: How long one page may take with all its retries, in seconds.
        user_agent: Who asks; Wikimedia wants an address in it that can be written to.

    Raises:
        ConfigError: The site is none of Wikipedia's, and no mirror.
    """

    name: ClassVar[str] = "wikipedia"

    def __init__(
        self,
        *,
        site: str = "https://en.wikipedia.org",
        mirror: bool = False,
        cache: str | Path | None = None,
        most_characters: int = 2000,
        most_bytes: int = 8_000_000,
        pace_s: float = 0.5,
        timeout_s: float = 10.0,
        deadline_s: float = 30.0,
        user_agent: str = _AGENT,
    ) -> None:
        host = urlsplit(site).hostname or ""
        if not mirror and (urlsplit(site).scheme != "https" or not host.endswith(".wikipedia.org")):
            expected = "https://LANGUAGE.wikipedia.org"
            raise ConfigError("not Wikipedia", where="retriever wikipedia", got=repr(site), expected=expected)
        super().__init__(
            site=site,
            mirror=mirror,
            cache=cache,
            most_characters=most_characters,
            most_bytes=most_bytes,
            pace_s=pace_s,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            user_agent=user_agent,
        )
        self._site, self._most_characters = site.rstrip("/"), most_characters
        self._pages = cache_folder("searchqa", cache) / "pages"
        self._fetcher = Fetcher(
            () if mirror else (host,),
            user_agent=user_agent,
            timeout_s=timeout_s,
            most_bytes=most_bytes,
            origin=self._site if mirror else None,
        )
        self._caller = Caller(f"retriever wikipedia, {self._site}", attempts=3, deadline_s=deadline_s, wait_s=1.0)
        self._pace_s, self._free, self._lock = pace_s, 0.0, threading.Lock()

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self._found(query, k) for query in queries]

    def _found(self, query: str, k: int) -> list[Passage]:
        options = {"action": "query", "list": "search", "format": "json", "srlimit": k, "srsearch": query[:300]}
        url = f"{self._site}/w/api.php?{urlencode(options)}"
        try:
            hits = _Answer.model_validate_json(self._page(url)).query.search
        except ValidationError as error:
            got = str(error.errors(include_url=False, include_input=False)[0]["msg"])
            raise WorldError("the search's answer is wrong", where=f"fetch {url[:200]}", got=got) from error
        return [
            Passage(str(hit.pageid), hit.title, self._beginning(hit.title), 1 / rank)
            for rank, hit in enumerate(hits[:k], 1)
        ]

    def _beginning(self, title: str) -> str:
        url = f"{self._site}/wiki/{quote(title.replace(' ', '_'))}"
        return _paragraphs(self._page(url).decode("utf-8", "replace"), self._most_characters)

    def _page(self, url: str) -> bytes:
        file = self._pages / hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            try:
                return file.read_bytes()
            except FileNotFoundError:
                body = self._caller.call(lambda until: self._got(url, until))
            _keep(file, body)
            return body

    def _got(self, url: str, until: float) -> bytes:
        wait_s = self._free - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        self._free = time.monotonic() + self._pace_s
        status, body = self._fetcher.get(url, until)
        if status != 200:
            raise WorldError("the page cannot be had", where=f"fetch {url[:200]}", got=f"status {status}", expected=200)
        return body

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._fetcher.close()


class _Foreign(Config):
    model_config = ConfigDict(extra="ignore")


class _Hit(_Foreign):
    pageid: int
    title: str


class _Query(_Foreign):
    search: tuple[_Hit, ...]


class _Answer(_Foreign):
    query: _Query


def _keep(file: Path, body: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(body)
    Path(name).replace(file)


def _paragraphs(html: str, most_characters: int) -> str:
    """Return the first paragraphs of a page's article, without notes and what is no text."""
    page = BeautifulSoup(html, "html.parser")
    article = page.select_one("div.mw-parser-output") or page
    for element in article.select("sup.reference, style, script, .mw-editsection"):
        element.decompose()
    kept: list[str] = []
    size = 0
    for element in article.find_all("p"):
        text = " ".join(element.get_text().split())
        if text:
            size += len(text) + 1
            if kept and size > most_characters:
                break
            kept.append(text[:most_characters])
    return "\n".join(kept)
