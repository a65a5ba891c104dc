"""Pages of a WebShop site by HTTP: from this site alone, in time, and small enough, or an error of the world."""

import time
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from agentgym_tok.envs.webshop.site.html import SitePage, read_page
from agentgym_tok.errors import ConfigError, WorldError

__all__ = ["NoSuchPage", "Web", "broken", "joined"]

_MOST_REDIRECTS = 4
_MOST_BYTES = 16_000_000
_PAUSE_S = 0.5
_NO_PORT = -1


class NoSuchPage(WorldError):
    """The site answered that it has no such page."""


class Web:
    """Ask a site for pages. Redirects to elsewhere, and proxies and passwords of the environment, are not followed.

    Args:
        url: The address of the site.
        timeout_s: How long a page may take with all redirects and retries, in seconds.

    Raises:
        ConfigError: The address is none of HTTP.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        scheme, host, port = _origin(url)
        if scheme not in {"http", "https"} or not host or port == _NO_PORT:
            raise ConfigError("no HTTP address", where="WebShop, url", got=repr(url), expected="http://HOST:PORT")
        self.url = url.rstrip("/") + "/"
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = False

    def ask(self, method: str, url: str, form: Mapping[str, str] | None = None) -> tuple[SitePage, str]:
        """Return a page, and its address behind all redirects.

        Args:
            method: `GET` or `POST`.
            url: The whole address of the page.
            form: What is sent with it.

        Raises:
            NoSuchPage: The site has no page of this address.
            WorldError: The site does not answer, or with something else than pages of its own.
        """
        until = time.monotonic() + self._timeout_s
        for _ in range(_MOST_REDIRECTS + 1):
            if _origin(url) != _origin(self.url):
                raise broken(url, "an address elsewhere")
            status, told, body = self._request(method, url, form, until)
            if status == requests.codes.not_found:
                raise NoSuchPage("the WebShop site has no such page", where=url, fix="check the address of the site")
            if told is None and status != requests.codes.ok:
                raise broken(url, f"status {status}")
            if told is None:
                return read_page(body.decode("utf-8", "replace")), url
            url, method, form = joined(url, told), "GET", None
        raise broken(url, "one redirect after another")

    def _request(
        self, method: str, url: str, form: Mapping[str, str] | None, until: float
    ) -> tuple[int, str | None, bytes]:
        """Return the status, where the answer points to instead, and the answer."""
        while True:
            try:
                left_s = max(until - time.monotonic(), 0.01)
                with self._session.request(
                    method, url, data=form, timeout=left_s, allow_redirects=False, stream=True
                ) as response:
                    told = response.headers["Location"] if response.is_redirect else None
                    return response.status_code, told, b"" if told is not None else _read(response, until)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                # Every request can be repeated: nothing that a session does stands anywhere but in its addresses.
                again = isinstance(error, requests.ConnectionError) and not isinstance(error, requests.Timeout)
                if not again or time.monotonic() + _PAUSE_S > until:
                    got, fix = f"{type(error).__name__}: {error}", "check that it runs, or raise timeout_s"
                    raise WorldError("the WebShop site does not answer", where=url, got=got, fix=fix) from error
                time.sleep(_PAUSE_S)


def _read(response: requests.Response, until: float) -> bytes:
    """Read an answer, unless it is too long or comes too slowly."""
    pieces, size = [], 0
    for piece in response.iter_content(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES or time.monotonic() > until:
            raise requests.Timeout(f"{size} bytes, and no end")
    return b"".join(pieces)


def joined(at: str, address: str) -> str:
    """Return where an address on a page leads."""
    try:
        return urljoin(at, address)
    except ValueError as error:
        raise broken(at, f"the address {address!r}") from error


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of an address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", None, _NO_PORT
    return parts.scheme, parts.hostname, port


def broken(url: str, got: str) -> WorldError:
    """Make the error for an answer that is no page of the shop."""
    return WorldError(
        "the WebShop site answers with something else than its pages",
        where=url,
        got=got,
        expected="a page of the shop",
        fix="check the address, and that the site is WebShop's own",
    )
