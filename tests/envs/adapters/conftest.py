"""What the adapters' tests talk to: recordings of the real packages, or, under `deep`, those packages themselves.

`make plugins` puts them into environments of their own; `AGENTGYM_TOK_PLUGINS` is the folder of these. With
`AGENTGYM_TOK_RECORD=1` the deep tests write the recordings anew.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.adapters import openenv

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # for the module that some of these tests share
VECTORS = HERE / "vectors"
RECORDS = os.environ.get("AGENTGYM_TOK_RECORD") == "1"

Interpreter = Callable[[str, str], str]
BOTH = ["recorded", pytest.param("real", marks=pytest.mark.deep)]


def real_python(name: str) -> str:
    folder = os.environ.get("AGENTGYM_TOK_PLUGINS")
    python = Path(folder or ".") / name / "bin" / "python"
    if not folder or not python.exists():
        pytest.skip(f"no environment {name} in AGENTGYM_TOK_PLUGINS: make plugins")
    return str(python)


@pytest.fixture(params=BOTH)
def interpreter(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Interpreter]:
    """Return what gives an interpreter: one that replays a dialogue, or the real one, which is compared with it."""
    monkeypatch.setenv("PYTHONPATH", str(HERE / "worlds"))
    compared: list[tuple[Path, Path]] = []

    def give(package: str, dialogue: str) -> str:
        vector, script = VECTORS / f"{dialogue}.json", tmp_path / f"python-{dialogue}"
        arguments = ["replay", str(vector)]
        if request.param == "real":
            heard = tmp_path / f"{dialogue}.json"
            arguments = ["record", str(heard), real_python(package)]
            compared.append((vector, heard))
        more = '"$@"' if request.param == "real" else ""
        words = " ".join([sys.executable, str(HERE / "interpreter.py"), *arguments, more])
        script.write_text(f"#!/bin/sh\nexec {words}\n", encoding="utf-8")
        script.chmod(0o755)
        return str(script)

    yield give
    for vector, heard in compared:
        if RECORDS:
            shutil.copy(heard, vector)
        assert json.loads(heard.read_text(encoding="utf-8")) == json.loads(vector.read_text(encoding="utf-8"))


# ---- OpenEnv


class Notes:
    """Write down what a server answers, or read it out again."""

    def __init__(self, file: Path, *, replays: bool) -> None:
        self._file, self._replays = file, replays
        self._notes: list[Any] = json.loads(file.read_text(encoding="utf-8")) if replays else []

    def ask(self, question: Any, ask: Callable[[], Any]) -> Any:
        if self._replays:
            asked, answer = self._notes.pop(0)
            assert question == asked
            return answer
        answer = ask()
        self._notes.append([question, answer])
        return answer

    def end(self) -> None:
        if self._replays:
            assert not self._notes
        elif RECORDS:
            self._file.write_text(json.dumps(self._notes, indent=1) + "\n", encoding="utf-8")
        else:
            assert self._notes == json.loads(self._file.read_text(encoding="utf-8"))


class Session:
    """A session whose answers are noted or read out."""

    def __init__(self, notes: Notes, inner: Any) -> None:
        self._notes, self._inner, self._said = notes, inner, ""

    def send(self, message: str) -> None:
        self._said = message
        if self._inner is not None:
            self._inner.send(message)

    def recv(self, timeout: float) -> str:
        return json.dumps(
            self._notes.ask(json.loads(self._said), lambda: json.loads(self._inner.recv(timeout=timeout)))
        )


@contextlib.contextmanager
def session(notes: Notes, connecting: Any) -> Iterator[Session]:
    with contextlib.nullcontext() if connecting is None else connecting as inner:
        yield Session(notes, inner)


@pytest.fixture(params=BOTH)
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., str]]:
    """Return what gives the address of an OpenEnv server: of a real one, or of its notes."""
    running: list[subprocess.Popen[bytes]] = []
    notes: list[Notes] = []

    def give(name: str, app: str = "", folder: Path = HERE / "worlds") -> str:
        replays = request.param == "recorded"
        kept = Notes(VECTORS / f"openenv-{name}.json", replays=replays)
        url = "http://127.0.0.1:1" if replays else started(name, app, folder)
        notes.append(kept)  # where no server starts nothing is heard
        get, connect = openenv.OpenEnvEngine._get, openenv._connect
        monkeypatch.setattr(
            openenv.OpenEnvEngine, "_get", lambda self, page: kept.ask(page, lambda: get(self, page)), raising=True
        )
        monkeypatch.setattr(
            openenv, "_connect", lambda url, limit: session(kept, None if replays else connect(url, limit))
        )
        return url

    def started(name: str, app: str, folder: Path) -> str:
        python = real_python("openenv")
        if not app:  # the environment that OpenEnv itself makes
            subprocess.run([Path(python).with_name("openenv"), "init", "my_env"], cwd=tmp_path, check=True)
            app, folder = "server.app:app", tmp_path / "my_env"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [python, "-m", "uvicorn", app, "--port", str(port), "--log-level", "error"]
        running.append(subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}))
        url = f"http://127.0.0.1:{port}"
        for _ in range(900):
            try:
                urllib.request.urlopen(f"{url}/health").close()
            except OSError:
                assert running[-1].poll() is None, "the server ended"
                time.sleep(0.2)
            else:
                return url
        raise TimeoutError(url)

    yield give
    for process in running:
        process.terminate()
        process.wait()
    for kept in notes:
        kept.end()
