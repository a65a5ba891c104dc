"""Get pages of a few public hosts, and nothing that a private network could be reached by (SSRF)."""

import ipaddress
import socket
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urljoin

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import parse_url

from agentgym_tok.envs.searchqa.retrieval.calls import Passing, read_body
from agentgym_tok.errors import WorldError

__all__ = ["Fetcher", "public_addresses"]

_MOST_REDIRECTS = 5
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_TUNNELS = (ipaddress.ip_network("2002::/16"), ipaddress.ip_network("2001::/32"))  # 6to4 and Teredo


class Fetcher:
    """Get pages.

    Every address, that of a redirect too, must use HTTPS and name a host of the list, without a password and on the
    scheme's own port. The host's name is looked up once per connection; where any of its addresses is not public,
    nothing is connected, and else the connection goes to the very address that was looked at.

    Args:
        hosts: Names of hosts, as they stand in addresses.
        user_agent: Who asks.
        timeout_s: How long to wait for a connection, or for the next bytes, in seconds.
        most_bytes: How long a page may be.
        origin: One address, `http://HOST:PORT`, that may be got too, wherever it is: one's own mirror.
    """

    def __init__(
        self,
        hosts: Collection[str],
        *,
        user_agent: str,
        timeout_s: float,
        most_bytes: int,
        origin: str | None = None,
    ) -> None:
        self._hosts, self._timeout_s, self._most_bytes = frozenset(hosts), timeout_s, most_bytes
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update({"User-Agent": user_agent, "Accept-Encoding": "identity"})
        self._session.mount("http://", _PublicAdapter())
        self._session.mount("https://", _PublicAdapter())
        self._origin = origin and _origin(origin)
        if origin:
            self._session.mount(f"{origin}/", HTTPAdapter())

    def get(self, url: str, until: float) -> tuple[int, bytes]:
        """Return the status and the body of a page; redirects are followed where they lead to allowed addresses.

        Args:
            url: The address.
            until: When it must be there (`time.monotonic()`).

        Raises:
            Passing: It did not work now.
            WorldError: An address is refused, or the page is too long.
        """
        where = f"fetch {url[:200]}"
        for _ in range(_MOST_REDIRECTS + 1):
            self._refuse_forbidden(url, where)
            left_s = max(min(self._timeout_s, until - time.monotonic()), 0.01)
            try:
                response = self._session.get(url, timeout=left_s, allow_redirects=False, stream=True)
                body = read_body(response, until, self._most_bytes, where)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                raise Passing(f"{type(error).__name__}: {error}") from error
            if not response.is_redirect:
                return response.status_code, body
            url = urljoin(url, response.headers["Location"])
            where = f"fetch {url[:200]}, a redirect"
        raise WorldError("the page redirects without an end", where=where, expected=f"{_MOST_REDIRECTS} at most")

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _refuse_forbidden(self, url: str, where: str) -> None:
        try:
            # The parser that requests uses too: two that disagree are a way round any check.
            parts = parse_url(url)
        except urllib3.exceptions.LocationParseError as error:
            raise _refused(where, str(error), "an address") from error
        if self._origin and _origin(url) == self._origin and not parts.auth:
            return
        if parts.scheme != "https" or parts.port not in {None, 443} or parts.auth:
            raise _refused(where, f"{parts.scheme}, port {parts.port}", "https, without port and password")
        if parts.host not in self._hosts:
            raise _refused(where, repr(parts.host), f"one of {', '.join(sorted(self._hosts))}")


def public_addresses(host: str, port: int) -> list[str]:
    """Look up a host.

    Args:
        host: A name or an address, in any notation that the system understands.
        port: The port.

    Returns:
        Its addresses.

    Raises:
        WorldError: One of them is not public: loopback, private, link-local, multicast, reserved, or a tunnel.
        OSError: It has none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for address in addresses:
        if not _is_public(address):
            raise _refused(f"fetch from {host}", address, "public addresses only")
    return addresses


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if address in _NAT64:  # how a network of IPv6 alone sees the others; the address inside is the one that is reached
        address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    special = address.is_multicast or address.is_reserved
    return address.is_global and not special and not any(address in tunnel for tunnel in _TUNNELS)


def _refused(where: str, got: str, expected: str) -> WorldError:
    return WorldError("the address is refused", where=where, got=got, expected=expected)


def _origin(url: str) -> tuple[str | None, str | None, int | None]:
    parts = parse_url(url)
    return parts.scheme, parts.host, parts.port


def _dial(address: str, port: int, timeout_s: float | None) -> socket.socket:
    return socket.create_connection((address, port), timeout_s)


class _Public(HTTPConnection):
    """Connect to the very address that was looked at; TLS still proves the host's name."""

    def _new_conn(self) -> socket.socket:
        timeout_s = self.timeout if isinstance(self.timeout, int | float) else None
        failure: OSError | None = None
        for address in public_addresses(self.host, self.port):
            try:
                return _dial(address, self.port, timeout_s)
            except OSError as error:
                failure = error
        raise urllib3.exceptions.NewConnectionError(self, str(failure)) from failure


class _PublicHTTPS(_Public, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _Public  # pyright: ignore[reportAssignmentType]  urllib3's own class fails its protocol too


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _PublicHTTPS  # pyright: ignore[reportAssignmentType]


class _PublicAdapter(HTTPAdapter):
    """Connect to public addresses only."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
