"""Downloads are tested against a server of our own on the loopback interface."""

import hashlib
import io
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentgym_tok.envs.alfworld import download
from agentgym_tok.envs.alfworld.download import get_alfworld
from agentgym_tok.envs.alfworld.official import OfficialGames
from agentgym_tok.errors import DataCorrupt, DataMissing

WriteGame = Callable[..., Path]
TRIAL = "json_2.1.1/train/pick-A/trial_1"


class Server(ThreadingHTTPServer):
    """Serve one file; say what was asked, and fail as often as told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = b""
        self.asked: list[str | None] = []
        self.failures: list[int | str] = []
        self.ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/releases/games.zip"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the class above
        pass

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        failure = self.server.failures.pop(0) if self.server.failures else None
        if isinstance(failure, int):
            self.send_error(failure)
            return
        body, start = self.server.body, 0
        if asked and self.server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = start + (len(body) - start) // 2 if failure == "cut" else len(body)
        self.wfile.write(body[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces of one byte: what a broken connection has brought is kept to the last byte.
    monkeypatch.setattr(download, "_PIECE", 1)
    monkeypatch.setattr(download, "_WAITS_S", (0, 0, 0, None))


@pytest.fixture
def archive(write_game: WriteGame, tmp_path: Path) -> bytes:
    game = write_game(tmp_path / "game").read_bytes()
    return zipped({f"{TRIAL}/game.tw-pddl": game, f"{TRIAL}/traj_data.json": b"{}", "json_2.1.1/readme": b"x" * 5000})


def zipped(members: dict[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return buffer.getvalue()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_games_are_downloaded_unpacked_and_playable(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.body = archive
    folder = tmp_path / "new" / "data"
    seen: list[tuple[int, int | None]] = []
    found = get_alfworld(folder, url=server.url, progress=lambda done, total: seen.append((done, total)))
    assert found == (folder, 2, hashlib.sha256(archive).hexdigest())
    assert seen[-1] == (len(archive), len(archive))
    assert files(folder) == {f"{TRIAL}/game.tw-pddl", f"{TRIAL}/traj_data.json"}
    games = OfficialGames("train", folder)
    assert games.game("train/pick-A/trial_1").task_type == "pick_and_place_simple"


def test_a_broken_connection_is_continued_where_it_broke(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.body, server.failures = archive, ["cut", 503, "cut"]
    get_alfworld(tmp_path / "data", url=server.url)
    half = len(archive) // 2
    assert server.asked == [None, f"bytes={half}-", f"bytes={half}-", f"bytes={half + (len(archive) - half) // 2}-"]


def test_attempts_are_bounded_and_the_next_run_continues(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.body, server.failures = archive, ["cut", 500, 500, 500]
    with pytest.raises(DataMissing, match="run the same command again") as caught:
        get_alfworld(tmp_path, url=server.url)
    assert caught.value.where == server.url
    assert len(server.asked) == 4
    get_alfworld(tmp_path, url=server.url)
    assert server.asked[4:] == [f"bytes={len(archive) // 2}-"]
    assert (tmp_path / TRIAL / "game.tw-pddl").is_file()


def test_a_server_without_ranges_starts_anew(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.body, server.failures, server.ranges = archive, ["cut"], False
    assert get_alfworld(tmp_path, url=server.url).sha256 == hashlib.sha256(archive).hexdigest()


def test_a_part_that_is_already_whole_is_taken(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.body = archive
    (tmp_path / "games.zip.part").write_bytes(archive)
    assert get_alfworld(tmp_path, url=server.url).files == 2
    assert server.asked == [f"bytes={len(archive)}-"]


def test_a_part_that_is_longer_than_the_file_is_thrown_away(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.body = archive
    (tmp_path / "games.zip.part").write_bytes(archive + b"more")
    assert get_alfworld(tmp_path, url=server.url).sha256 == hashlib.sha256(archive).hexdigest()
    assert server.asked == [f"bytes={len(archive) + 4}-", None]


def test_an_archive_that_was_not_unpacked_is_not_downloaded_again(
    server: Server, archive: bytes, tmp_path: Path
) -> None:
    (tmp_path / "games.zip").write_bytes(archive)
    assert get_alfworld(tmp_path, url=server.url).files == 2
    assert server.asked == []


def test_a_second_download_replaces_the_files(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.body = archive
    get_alfworld(tmp_path, url=server.url)
    (tmp_path / TRIAL / "traj_data.json").write_text("changed")
    get_alfworld(tmp_path, url=server.url)
    assert (tmp_path / TRIAL / "traj_data.json").read_text() == "{}"


def test_a_file_that_is_not_there_is_asked_for_once(server: Server, tmp_path: Path) -> None:
    server.failures = [404]
    with pytest.raises(DataMissing, match="404") as caught:
        get_alfworld(tmp_path, url=server.url)
    assert caught.value.where == server.url
    assert len(server.asked) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/games.zip", "no-scheme/games.zip"])
def test_a_server_that_cannot_be_reached_is_missing_data(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataMissing, match="could not be downloaded"):
        get_alfworld(tmp_path, url=url)


def _link() -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(f"{TRIAL}/link")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


@pytest.mark.parametrize(
    "members",
    [
        {"json_2.1.1/readme": b""},
        {"../game.tw-pddl": b"{}"},
        {"json_2.1.1/../../game.tw-pddl": b"{}"},
        {"/tmp/game.tw-pddl": b"{}"},
        {"C:/game.tw-pddl": b"{}"},
        {f"{TRIAL}/game.tw-pddl": b"{}", "..\\evil": b""},
        {f"{TRIAL}/game.tw-pddl": b"{}", _link(): b"/etc/passwd"},
    ],
)
def test_an_unsafe_or_foreign_archive_is_refused_whole(
    server: Server, tmp_path: Path, members: dict[str | zipfile.ZipInfo, bytes]
) -> None:
    server.body = zipped(members)
    with pytest.raises(DataCorrupt, match="not an archive of ALFWorld games"):
        get_alfworld(tmp_path / "data", url=server.url)
    assert files(tmp_path) == set()


def test_what_is_no_archive_is_refused_and_removed(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.body = b"<html>not found</html>"
    with pytest.raises(DataCorrupt):
        get_alfworld(tmp_path / "data", url=server.url)
    assert files(tmp_path / "data") == set()
    server.body = archive
    assert get_alfworld(tmp_path / "data", url=server.url).files == 2


def test_a_damaged_member_never_appears_under_its_name(server: Server, archive: bytes, tmp_path: Path) -> None:
    place = archive.index(b"pddl_problem")
    server.body = archive[:place] + b"PDDL" + archive[place + 4 :]
    with pytest.raises(DataCorrupt, match="CRC"):
        get_alfworld(tmp_path / "data", url=server.url)
    assert f"{TRIAL}/game.tw-pddl" not in files(tmp_path / "data")
