"""One writer for each shard."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.errors import StoreLocked, TraceError
from agentgym_tok.trace import TraceStore
from agentgym_tok.trace.lock import ShardLock

HOLDER = textwrap.dedent(
    """
    import os, sys, time
    from agentgym_tok.trace import RunMeta, TraceStore
    store = TraceStore(sys.argv[1], meta=RunMeta(fingerprint="f" * 64, vocab_size=5000))
    child = os.fork() if len(sys.argv) > 2 else 0
    os.write(1, f"ready {os.getpid()}\\n".encode())  # one write, so that two processes never share a line
    time.sleep(60)
    """
)


def holder(run: Path, *arguments: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(run), *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process


def test_a_second_writer_of_this_process_is_refused(make: Any, tmp_path: Path) -> None:
    owner = f"process {os.getpid()} on {socket.gethostname()}"
    with TraceStore(tmp_path, meta=make.meta) as store:
        with pytest.raises(StoreLocked, match=owner):
            TraceStore(tmp_path)
        store.begin(make.head("e"))
    with TraceStore(tmp_path) as store:
        assert len(store) == 1


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert process.stdout.readline().startswith("ready")
        with pytest.raises(StoreLocked, match=f"process {process.pid} on"):
            TraceStore(tmp_path)
        process.kill()
        process.wait()
    with TraceStore(tmp_path) as store:
        assert len(store) == 0


def test_a_child_that_outlives_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path, "fork") as process:
        pids = {int(process.stdout.readline().split()[1]) for _ in range(2)}
        (child,) = pids - {process.pid}
        process.kill()
        process.wait()
        try:
            with TraceStore(tmp_path) as store:
                assert len(store) == 0
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_store_that_failed_to_open_holds_nothing(make: Any, tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        TraceStore(tmp_path)
    with TraceStore(tmp_path, meta=make.meta):
        pass


def test_releasing_twice_frees_once(tmp_path: Path) -> None:
    lock = ShardLock(tmp_path / "x.lock")
    lock.release()
    other = ShardLock(tmp_path / "x.lock")
    lock.release()
    with pytest.raises(StoreLocked):
        ShardLock(tmp_path / "x.lock")
    other.release()


def test_a_writer_in_another_thread_is_refused(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta), ThreadPoolExecutor(1) as pool:
        opening = pool.submit(TraceStore, tmp_path)
        with pytest.raises(StoreLocked, match=f"process {os.getpid()} on {socket.gethostname()}"):
            opening.result()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_of_the_writer_is_refused_as_any_other(make: Any, tmp_path: Path) -> None:
    said, says = os.pipe()
    with TraceStore(tmp_path, meta=make.meta) as store:
        child = os.fork()
        if child == 0:
            for attempt in (lambda: TraceStore(tmp_path), lambda: store.begin(make.head("e"))):
                try:
                    attempt()
                except TraceError as error:
                    os.write(says, f"{type(error).__name__}: {error}\n".encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(says)
        store.begin(make.head("e"))
    with os.fdopen(said) as pipe:
        refused, inherited = pipe.read().splitlines()
    assert refused.startswith("StoreLocked")
    assert f"process {os.getpid()} on {socket.gethostname()}" in refused
    assert inherited.startswith("TraceError: a store does not survive a fork")


@pytest.mark.parametrize(
    "stale", ["", "{", "[]", "\0" * 9000, '{"pid": 1}', '{"pid": 1, "host": "elsewhere"}'], ids=range(6)
)
def test_what_a_dead_writer_left_in_the_lock_file_claims_nothing(make: Any, tmp_path: Path, stale: str) -> None:
    (tmp_path / "shards").mkdir()
    lock = tmp_path / "shards" / "main.lock"
    lock.write_text(stale)
    with TraceStore(tmp_path, meta=make.meta):
        assert json.loads(lock.read_text()) == {"pid": os.getpid(), "host": socket.gethostname()}
        lock.write_text(stale)  # somebody scribbles over it: the lock holds all the same
        with pytest.raises(StoreLocked):
            TraceStore(tmp_path)


@pytest.mark.parametrize("what", ["directory", "dangling link"])
def test_a_lock_file_that_is_none_is_our_error(make: Any, tmp_path: Path, what: str) -> None:
    (tmp_path / "shards").mkdir()
    lock = tmp_path / "shards" / "main.lock"
    if what == "directory":
        lock.mkdir()
    else:
        lock.symlink_to(tmp_path / "nowhere" / "x")
    with pytest.raises(TraceError, match="the shard cannot be locked"):
        TraceStore(tmp_path, meta=make.meta)


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_lock_whose_holder_cannot_say_its_name_is_our_error_and_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(TraceError, match=r"cannot be locked.*No space left"):
            ShardLock(tmp_path / "x.lock")
    ShardLock(tmp_path / "x.lock").release()


def test_a_lock_in_no_folder_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be locked"):
        ShardLock(tmp_path / "no" / "x.lock")
