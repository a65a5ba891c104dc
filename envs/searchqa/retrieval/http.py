"""A retriever behind Search-R1's `/retrieve`, in either of its forms."""

import time
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

import requests
import urllib3
from pydantic import ValidationError
from requests.adapters import HTTPAdapter

from agentgym_tok.envs.searchqa.retrieval.calls import Caller, Passing, read_body
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.protocol import SearchAnswer
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever
from agentgym_tok.errors import ConfigError, WorldError

__all__ = ["HTTPRetriever"]

_CONNECTIONS = 64
_BATCH = 128


class HTTPRetriever(BaseRetriever):
    """Ask a retrieval server.

    It asks with `queries` first, and with one `query` at a time where the server refuses that. The order of the
    answer is the server's. Redirects, and proxies and passwords of the process' environment, are not followed.

    Args:
        url: The address of `/retrieve`.
        token: Sent as a bearer token.
        timeout_s: How long to wait for a connection, or for the next bytes, in seconds.
        deadline_s: How long one request may take with all its retries, in seconds.
        attempts: How often one request may try.
        most_bytes: How long an answer may be.

    Raises:
        ConfigError: The address is none of HTTP, or holds a password.
    """

    name: ClassVar[str] = "http"

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 10.0,
        deadline_s: float = 30.0,
        attempts: int = 4,
        most_bytes: int = 64_000_000,
    ) -> None:
        if not url.startswith(("http://", "https://")) or urlsplit(url).username is not None:
            expected = "http://HOST/retrieve, and a password as `token`"
            raise ConfigError(
                "no HTTP address", where="retriever http", got=f"{url.partition(':')[0]}:...", expected=expected
            )
        super().__init__(
            url=url, token=token, timeout_s=timeout_s, deadline_s=deadline_s, attempts=attempts, most_bytes=most_bytes
        )
        self._url, self._timeout_s, self._most_bytes = url, timeout_s, most_bytes
        self._where = f"retriever http, {url}"
        self._caller = Caller(self._where, attempts=attempts, deadline_s=deadline_s)
        self._one_by_one = False
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Accept-Encoding"] = "identity"
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"
        adapter = HTTPAdapter(pool_connections=1, pool_maxsize=_CONNECTIONS)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, adapter)

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        found: list[list[Passage]] = []
        for start in range(0, len(queries), _BATCH):
            found += self._batch(queries[start : start + _BATCH], k)
        return found

    def _batch(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        more = {"topk": k, "return_scores": True}
        if not self._one_by_one:
            try:
                return self._ask({"queries": list(queries), **more}, len(queries), k)
            except _OtherForm:
                self._one_by_one = True
        return [self._ask({"query": query, **more}, 1, k)[0] for query in queries]

    def _ask(self, body: dict[str, Any], expected: int, k: int) -> list[list[Passage]]:
        data = self._caller.call(lambda until: self._post(body, until))
        try:
            found = SearchAnswer.model_validate_json(data).passages()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            got = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise self._wrong(got) from error
        if len(found) != expected:
            raise self._wrong(f"results for {len(found)} queries instead of {expected}")
        return [passages[:k] for passages in found]

    def _post(self, body: dict[str, Any], until: float) -> bytes:
        left_s = max(min(self._timeout_s, until - time.monotonic()), 0.01)
        try:
            response = self._session.post(self._url, json=body, timeout=left_s, allow_redirects=False, stream=True)
            data = read_body(response, until, self._most_bytes, self._where)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise Passing(f"{type(error).__name__}: {error}") from error
        if response.status_code in {400, 422} and "queries" in body:
            raise _OtherForm
        if response.status_code != requests.codes.ok:
            got = f"status {response.status_code}"
            if response.is_redirect:
                got += f" to {response.headers['Location']!r}; redirects are refused"
            raise WorldError("the server refused", where=self._where, got=got, fix="check the address and the token")
        return data

    def _wrong(self, got: str) -> WorldError:
        expected = '{"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}'
        return WorldError("the server's answer is wrong", where=self._where, got=got, expected=expected)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._session.close()


class _OtherForm(Exception):
    """The server does not take a list of queries."""
