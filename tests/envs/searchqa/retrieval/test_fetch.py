"""Pages come from listed public hosts only: every address of the SSRF corpus is refused, and nothing is connected."""

import socket
import time
from typing import Any

import pytest
import requests

from agentgym_tok.envs.searchqa.retrieval import fetch as fetch_module
from agentgym_tok.envs.searchqa.retrieval.calls import Passing
from agentgym_tok.envs.searchqa.retrieval.fetch import Fetcher, public_addresses
from agentgym_tok.errors import WorldError

HOST = "en.wikipedia.org"
METADATA = "169.254.169.254"  # where clouds keep credentials
PUBLIC = "93.184.216.34"

PRIVATE_HOSTS = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "10.0.0.8",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "2852039166",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "ff02::1",
    "2002:7f00:1::",
    "2002:5db8:d822::",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:db8::1",
    "4000::1",
    "localhost",
]

REFUSED_URLS = [
    f"http://{METADATA}/latest/meta-data/",
    f"https://{METADATA}/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://0x7f000001/",
    "https://2130706433/",
    "https://017700000001/",
    "https://127.1/",
    "https://localhost/",
    f"http://{HOST}/",
    f"https://{HOST}:8443/",
    f"https://{HOST}:22/",
    f"https://user:secret@{HOST}/",
    f"https://{HOST}@169.254.169.254/",
    f"https://{METADATA}#@{HOST}/",
    f"https://{METADATA}\\@{HOST}/",
    f"https://{HOST}.evil.example/",
    f"https://evil.example/?{HOST}",
    f"https://evil.example\t.{HOST}/",
    f"https://{HOST}./",
    "https://metadata.google.internal/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp://127.0.0.1/",
    "dict://127.0.0.1:11211/stat",
    "data:text/plain,x",
    "javascript:alert(1)",
    "//169.254.169.254/",
    "/etc/passwd",
    "",
    "https://",
    "https:///etc",
    "https://[::1",
    f"https://{HOST}:99999/",
]


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Record every connection, and make none."""
    made: list[tuple[str, int]] = []

    def dial(address: str, port: int, timeout_s: float | None) -> socket.socket:
        made.append((address, port))
        raise ConnectionRefusedError(f"no outside network: {timeout_s}")

    monkeypatch.setattr(fetch_module, "_dial", dial)
    return made


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Answer look-ups one after the other, the last one for ever."""
    left, asked = list(answers), list[str]()

    def look_up(host: str, port: int, **_more: Any) -> list[Any]:
        asked.append(host)
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [(None, None, None, "", (address, port)) for address in addresses]

    monkeypatch.setattr(fetch_module.socket, "getaddrinfo", look_up)
    return asked


def fetcher(**options: Any) -> Fetcher:
    return Fetcher(**{"hosts": [HOST], "user_agent": "test", "timeout_s": 2, "most_bytes": 1000, **options})


def soon() -> float:
    return time.monotonic() + 5


@pytest.mark.parametrize("url", REFUSED_URLS)
def test_an_address_that_is_not_on_the_list_is_refused(url: str, dialled: list[tuple[str, int]]) -> None:
    with pytest.raises(WorldError, match="address is refused"):
        fetcher().get(url, soon())
    assert dialled == []


@pytest.mark.parametrize("host", PRIVATE_HOSTS)
def test_a_private_address_is_refused_in_every_notation_even_where_the_host_is_listed(
    host: str, dialled: list[tuple[str, int]]
) -> None:
    written = f"[{host}]" if ":" in host else host
    for refuse in (
        lambda: public_addresses(host, 443),
        lambda: fetcher(hosts=[written]).get(f"https://{written}/", soon()),
    ):
        with pytest.raises(WorldError, match=r"address is refused.*public addresses only"):
            refuse()
    assert dialled == []


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "169.254.169.254", "::ffff:10.0.0.1"])
def test_a_name_with_one_private_address_is_not_connected(
    address: str, monkeypatch: pytest.MonkeyPatch, dialled: list[tuple[str, int]]
) -> None:
    resolving(monkeypatch, [PUBLIC, address])
    with pytest.raises(WorldError, match="public addresses only"):
        fetcher().get(f"https://{HOST}/", soon())
    assert dialled == []


@pytest.mark.parametrize("address", [PUBLIC, "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_public_addresses_are_connected(
    address: str, monkeypatch: pytest.MonkeyPatch, dialled: list[tuple[str, int]]
) -> None:
    resolving(monkeypatch, [address])
    with pytest.raises(Passing):
        fetcher().get(f"https://{HOST}/", soon())
    assert dialled == [(address, 443)]


def test_a_name_that_changes_its_address_is_connected_at_the_one_looked_at(
    monkeypatch: pytest.MonkeyPatch, dialled: list[tuple[str, int]]
) -> None:
    asked = resolving(monkeypatch, [PUBLIC], ["127.0.0.1"])
    with pytest.raises(Passing, match=r"refused|no outside"):
        fetcher().get(f"https://{HOST}/", soon())
    assert (asked, dialled) == ([HOST], [(PUBLIC, 443)])
    with pytest.raises(WorldError, match="public addresses only"):
        fetcher().get(f"https://{HOST}/", soon())
    assert dialled == [(PUBLIC, 443)]


@pytest.mark.parametrize(
    "target",
    [*(f"http://{host}/" for host in ("127.0.0.1", "169.254.169.254", "[::1]", "2130706433")), "file:///etc/passwd"],
)
def test_a_redirect_to_a_private_address_is_refused(site: Any, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    # The origin stands for the public host: what it answers is followed under the same rules.
    site.always(b"", 302, Location=target)
    made: list[str] = []
    monkeypatch.setattr(fetch_module, "_dial", lambda address, *_: made.append(address))
    with pytest.raises(WorldError, match=r"address is refused; where: .*a redirect"):
        fetcher(origin=site.url).get(f"{site.url}/", soon())
    assert made == []


def test_redirects_have_an_end(site: Any) -> None:
    site.always(b"", 302, Location="/again")
    with pytest.raises(WorldError, match="without an end"):
        fetcher(origin=site.url).get(f"{site.url}/", soon())
    assert len(site.asked) == 6


def test_a_public_connection_goes_to_the_address_and_asks_for_the_name(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, [PUBLIC])
    made: list[str] = []

    def dial(address: str, _port: int, timeout_s: float | None) -> socket.socket:
        made.append(address)
        connection = socket.socket()
        connection.settimeout(timeout_s)
        connection.connect(("127.0.0.1", int(site.url.rpartition(":")[2])))
        return connection

    monkeypatch.setattr(fetch_module, "_dial", dial)
    response = fetcher()._session.get(f"http://{HOST}/page", timeout=2)
    assert (response.status_code, made, site.headers[0]["Host"]) == (200, [PUBLIC], HOST)


def test_a_page_that_is_too_long_or_late_is_a_failure(site: Any) -> None:
    site.always(b"x" * 1001)
    with pytest.raises(WorldError, match="too long"):
        fetcher(origin=site.url).get(f"{site.url}/", soon())
    site.always(b"", 503, Retry_After="3")
    with pytest.raises(Passing, match="503") as caught:
        fetcher(origin=site.url).get(f"{site.url}/", soon())
    assert caught.value.wait_s == 3


def test_only_the_origin_itself_is_allowed_beside_the_list(site: Any) -> None:
    site.always(b"page")
    other = site.url.replace("127.0.0.1", "localhost")
    assert fetcher(origin=site.url).get(f"{site.url}/x", soon()) == (200, b"page")
    for url in (f"{other}/x", f"{site.url}0/x", f"http://a:b@{site.url[7:]}/x"):
        with pytest.raises(WorldError, match="address is refused"):
            fetcher(origin=site.url).get(url, soon())
    assert requests.get(f"{other}/x", timeout=2).content == b"page"
