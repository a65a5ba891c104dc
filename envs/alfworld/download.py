"""Get the official ALFWorld games from ALFWorld's own releases."""

import hashlib
import stat
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import requests

from agentgym_tok.errors import DataCorrupt, DataMissing

__all__ = ["GOALS_URL", "OFFICIAL_URL", "Download", "get_alfworld"]

OFFICIAL_URL = "https://github.com/alfworld/alfworld/releases/download/0.4.0/json_2.1.2_tw-pddl.zip"
"""The game files of all splits, as ALFWorld 0.4.2 gets them."""

GOALS_URL = "https://github.com/alfworld/alfworld/releases/download/0.2.2/json_2.1.1_json.zip"
"""ALFRED's `traj_data.json` files with the human-written goals of the same games."""

_WAITS_S = (1, 3, 9, None)
_TIMEOUT_S = (10, 60)
_PIECE = 1 << 18
_WANTED = ("game.tw-pddl", "traj_data.json")


class Download(NamedTuple):
    """Say what was downloaded.

    Args:
        folder: The folder to name in ALFWORLD_DATA.
        files: Number of files unpacked.
        sha256: Digest of the archive, for the record: the releases publish none.
    """

    folder: Path
    files: int
    sha256: str


def get_alfworld(
    folder: str | Path, *, url: str = OFFICIAL_URL, progress: Callable[[int, int | None], None] | None = None
) -> Download:
    """Download an archive of ALFWorld's releases and unpack it.

    What an interrupted run has got is kept in the folder, and the next run continues there. Files appear under their
    names only when they are complete.

    Args:
        folder: Where `json_2.1.1` will stand; made where it does not exist.
        url: The archive: `OFFICIAL_URL`, `GOALS_URL`, or a copy of either.
        progress: Called with the bytes got so far, and those of the whole archive where the server tells.

    Raises:
        DataMissing: The server has no such file, or cannot be reached.
        DataCorrupt: The archive is broken, unsafe, or holds no ALFWorld data. It is removed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / PurePosixPath(url).name
    if not archive.is_file():
        _fetch(url, archive, progress or _silent)
    with archive.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    try:
        files = _unpack(archive, folder)
    except DataCorrupt:
        archive.unlink()
        raise
    archive.unlink()
    return Download(folder, files, sha256)


def _silent(_done: int, _total: int | None) -> None:
    pass


def _fetch(url: str, archive: Path, progress: Callable[[int, int | None], None]) -> None:
    part = archive.with_name(f"{archive.name}.part")
    for wait_s in _WAITS_S:
        try:
            _continue(url, part, progress)
        except requests.RequestException as error:
            if wait_s is None or not _may_pass(error):
                raise DataMissing(
                    "the ALFWorld games could not be downloaded",
                    where=url,
                    got=f"{type(error).__name__}: {error}",
                    fix="check the address and the network, then run the same command again: it continues",
                ) from error
            time.sleep(wait_s)
        else:
            part.replace(archive)
            return


def _continue(url: str, part: Path, progress: Callable[[int, int | None], None]) -> None:
    done = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            if response.headers.get("Content-Range") == f"bytes */{done}":
                return
            part.unlink()
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            done = 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if done else "wb") as stream:
            for piece in response.iter_content(_PIECE):
                stream.write(piece)
                done += len(piece)
                progress(done, total)


def _may_pass(error: requests.RequestException) -> bool:
    """Say whether the same request may succeed a little later."""
    if isinstance(error, requests.HTTPError):
        status = getattr(error.response, "status_code", 0)
        return status in {416, 429} or status >= 500
    return isinstance(error, requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError)


def _unpack(archive: Path, folder: Path) -> int:
    try:
        with zipfile.ZipFile(archive) as packed:
            for member in packed.infolist():
                _refuse_unsafe(member, archive)
            members = [member for member in packed.infolist() if PurePosixPath(member.filename).name in _WANTED]
            if not members:
                raise _corrupt(archive, "an archive without game.tw-pddl or traj_data.json")
            for member in members:
                path = folder / member.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                unfinished = path.with_name(f".{path.name}.part")
                unfinished.write_bytes(packed.read(member))
                unfinished.replace(path)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _corrupt(archive, f"{type(error).__name__}: {error}") from error
    return len(members)


def _refuse_unsafe(member: zipfile.ZipInfo, archive: Path) -> None:
    # ZipFile would quietly rename such members; an archive that holds one is not ALFWorld's.
    name = member.filename
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise _corrupt(archive, f"a member that leaves the folder: {name!r}")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise _corrupt(archive, f"a link: {name!r}")


def _corrupt(archive: Path, got: str) -> DataCorrupt:
    return DataCorrupt(
        "not an archive of ALFWorld games",
        where=archive,
        got=got,
        expected="a zip file with json_2.1.1/<split>/<kind of task>/<trial>/game.tw-pddl",
        fix="check the address, then download again",
    )
