"""`agentgym-tok trace view`: the file that it writes, and what its server answers."""

import base64
import http.client
import json
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.cli.main import main
from agentgym_tok.cli.trace_view import PageServer
from agentgym_tok.trace.viewer.view import page_policy

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    assert main(["eval", "alfworld", "--policy", "expert", "--episodes", "2", "--out", str(folder)]) == 0
    return folder


def index(file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8").partition('id="index">')[2].partition("<")[0]
    raw = zlib.decompress(base64.b64decode(text))
    return json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])


def test_the_page_is_written_beside_the_shards_with_its_drifts(run: Path, capsys: Capture) -> None:
    assert main(["trace", "view", str(run)]) == 0
    assert capsys.readouterr().out.startswith(f"{run / 'view.html'} (")
    assert [episode["drifts"] for episode in index(run / "view.html")["episodes"]] == [0, 0]


def test_a_run_of_a_format_that_cannot_be_made_is_shown_without_marks(
    run: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym_tok.cli.trace_view.own_format", lambda _: None)
    out = tmp_path / "page.html"
    assert main(["trace", "view", str(run), "--out", str(out)]) == 0
    assert "no drift marks" in capsys.readouterr().out
    assert [episode["drifts"] for episode in index(out)["episodes"]] == [None, None]


SPELLED = """
import numpy as np
from agentgym_tok import ChatFormat

def spelled(ids):
    # Letter by letter: no tokenizer would.
    chat = ChatFormat.builtin()
    return np.concatenate([chat.encode(letter) for letter in "<action>look</action>"])
"""


def test_drifts_stand_at_their_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spelling_policy.py").write_text(SPELLED)
    monkeypatch.syspath_prepend(tmp_path)
    options = ["--policy", "python:spelling_policy:spelled", "--episodes", "1", "--max-steps", "3"]
    assert main(["eval", "alfworld", *options, "--out", str(tmp_path / "run")]) == 0
    assert main(["trace", "view", str(tmp_path / "run")]) == 0
    assert index(tmp_path / "run" / "view.html")["episodes"][0]["drifts"] >= 3


def test_wrong_use_is_named(run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["trace", "view", str(tmp_path / "nothing")]) == 1
    assert "there is no trace" in capsys.readouterr().err
    assert main(["trace", "view", str(run), "--out", str(tmp_path / "no" / "page.html")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    with PageServer(Path(__file__)) as taken:
        port = str(taken.server_port)
        assert main(["trace", "view", str(run), "--serve", "--port", port]) == 2
    assert "take another --port" in capsys.readouterr().err


# ---- the server


@pytest.fixture
def server(run: Path) -> Iterator[PageServer]:
    assert main(["trace", "view", str(run)]) == 0
    with PageServer(run / "view.html") as started:
        thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def ask(server: PageServer, method: str = "GET", path: str = "/", **headers: str) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, answer.headers


def test_the_server_stands_on_loopback_and_serves_the_page_under_its_policy(server: PageServer, run: Path) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, body, headers = ask(server)
    assert (status, body) == (200, (run / "view.html").read_bytes())
    assert headers["Content-Security-Policy"] == f"{page_policy()}; frame-ancestors 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert ask(server, Host=f"localhost:{server.server_port}")[0] == 200
    status, body, headers = ask(server, "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == (run / "view.html").stat().st_size


@pytest.mark.parametrize("path", ["/view.html", "/shards/main.sqlite", "/../results.json", "/?", "/favicon.ico"])
def test_the_server_has_nothing_but_the_page(server: PageServer, path: str) -> None:
    assert ask(server, path=path)[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{port}", ""]
)
def test_other_names_that_lead_here_are_refused(server: PageServer, host: str) -> None:
    status, body, headers = ask(server, Host=host.format(port=server.server_port))
    assert status == 421
    assert b"doctype html>\n<html lang" not in body
    assert "Content-Security-Policy" in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_the_server_only_reads(server: PageServer, method: str) -> None:
    assert ask(server, method)[0] == 501
